#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace jitgemm::test {

/// Whether choice x of axis i and choice y of axis j, i < j, cannot go together.
using Forbidden = std::function<bool(std::size_t i, int x, std::size_t j, int y)>;
/// Rows of choices, one for each axis, in which any two choices of any two axes meet at least once unless forbidden.
/// Any choices must leave one that is allowed on every other axis.
std::vector<std::vector<int>> all_pairs(const std::vector<int>& axis_sizes, std::uint64_t seed,
                                        const Forbidden& forbidden = {});

}  // namespace jitgemm::test
