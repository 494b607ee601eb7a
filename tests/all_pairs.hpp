#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace jitgemm::test {

/// Whether choices, one for each axis, -1 where none is made yet, cannot become a row that is allowed. May say so late:
/// a row that has become impossible is given up.
using Forbidden = std::function<bool(const std::vector<int>& row)>;
/// Rows of choices, one for each axis, in which any two choices of any two axes meet at least once unless no row is
/// found that has them.
std::vector<std::vector<int>> all_pairs(const std::vector<int>& axis_sizes, std::uint64_t seed,
                                        const Forbidden& forbidden = {});

}  // namespace jitgemm::test
