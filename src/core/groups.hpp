#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/problem.hpp"

namespace jitgemm {

// Groups of rows, of which the host knows bounds and what to expect.

inline bool has_groups(const Problem& problem) { return problem.grouping != Grouping::none; }

/// Matrices of A, C and D: where offsets deal out the rows of one, the groups share it.
inline std::int64_t matrices_of_rows(const Problem& problem) {
  return problem.grouping == Grouping::offsets ? std::min<std::int64_t>(problem.batch, 1) : problem.batch;
}

/// The bucket of a group's expected rows.
inline std::int64_t expected_rows(const Problem& p) {
  const std::int64_t groups = std::max<std::int64_t>(1, p.batch);
  const std::int64_t alike = p.grouping == Grouping::offsets ? (p.m + groups - 1) / groups : p.m;
  const std::int64_t expected = std::clamp<std::int64_t>(p.expected_m > 0 ? p.expected_m : alike, 1, 1 << 30);
  return std::int64_t(std::bit_ceil(std::uint64_t(expected)));
}

/// The groups that have rows, if each of these has as many as are expected.
inline std::int64_t expected_groups(const Problem& p) {
  if (p.grouping != Grouping::offsets) return p.batch;
  const std::int64_t rows = expected_rows(p);
  return std::min(p.batch, (p.m + rows - 1) / rows);
}

/// The problem whose `groups` groups all have as many rows as are expected: by counts that are all of M, so that it is
/// a batch that also other than grouped kernels compute, and plans and measurements need to know no table.
NormalProblem expected_problem(const NormalProblem& problem, std::int64_t groups);

}  // namespace jitgemm
