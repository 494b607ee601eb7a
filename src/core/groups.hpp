#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "core/problem.hpp"

namespace jitgemm {

// Groups of rows, or of k, of which the host knows bounds and what to expect.

inline bool has_groups(const Problem& problem) { return problem.grouping != Grouping::none; }
/// Else they are of k, or there are none.
inline bool has_groups_of_rows(const Problem& problem) {
  return has_groups(problem) && problem.grouping != Grouping::along_k;
}

/// Whether each group's B lies where a pointer on the device says.
inline bool has_pointers_to_b(const Problem& problem) { return problem.b.batch_mode == BatchMode::pointers; }

/// Empty, or the rule for groups that the problem breaks and the way out.
std::string why_groups_unsupported(const Problem& problem);

/// Matrices of A, C and D: where offsets deal out the rows of one, the groups share it.
inline std::int64_t matrices_of_rows(const Problem& problem) {
  return problem.grouping == Grouping::offsets ? std::min<std::int64_t>(problem.batch, 1) : problem.batch;
}

/// The next power of two, or half as much again.
inline std::int64_t bucket_of(std::int64_t x) {
  const auto power = std::int64_t(std::bit_ceil(std::uint64_t(x)));
  return x <= power / 4 * 3 ? power / 4 * 3 : power;
}

/// The bucket of a group's expected rows, or along k of its k.
inline std::int64_t expected_rows(const Problem& p) {
  const std::int64_t groups = std::max<std::int64_t>(1, p.batch);
  const std::int64_t alike = p.grouping == Grouping::offsets   ? (p.m + groups - 1) / groups
                             : p.grouping == Grouping::along_k ? (p.k + groups - 1) / groups
                                                               : p.m;
  return bucket_of(std::clamp<std::int64_t>(p.expected_m > 0 ? p.expected_m : alike, 1, 1 << 30));
}

/// The groups that have rows, if each of these has as many as are expected.
inline std::int64_t expected_groups(const Problem& p) {
  if (p.grouping != Grouping::offsets) return p.batch;
  const std::int64_t rows = expected_rows(p);
  return std::min(p.batch, (p.m + rows - 1) / rows);
}

/// The rows of tiles, of so many rows each, that groups have on average whose rows are uniformly spread around those
/// that are expected, by a half of them.
inline double expected_tile_rows(std::int64_t rows, std::int64_t tile_rows) {
  const auto sum = [tile_rows](std::int64_t most) {  // of groups of 1, 2, ... rows
    const double whole = double(most / tile_rows), rest = double(most % tile_rows), size = double(tile_rows);
    return size * whole * (whole + 1) / 2 + (whole + 1) * rest;
  };
  const std::int64_t fewest = rows - rows / 2, most = rows + rows / 2;
  return (sum(most) - sum(fewest - 1)) / double(most - fewest + 1);
}

/// The problem whose `groups` groups all have as many rows as are expected: by counts that are all of M, so that plans
/// need to know no table. Along k it has K of each group, and A and B of each.
NormalProblem expected_problem(const NormalProblem& problem, std::int64_t groups);

/// The problem that is chosen for and measured in the place of others, itself if it has no groups: it has a bucket of
/// the groups that are expected to have rows, as many at most as fill a large GPU several times, and room for as many
/// rows, or along k as much of it, as they are expected to have (offsets) or up to four times as many (counts).
NormalProblem typical_problem(const NormalProblem& problem);

/// A typical problem as a batch, itself if it has no groups: the same if all groups have the rows expected.
NormalProblem as_batch(const NormalProblem& typical);

}  // namespace jitgemm
