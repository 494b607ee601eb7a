#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "jitgemm/problem.hpp"

namespace jitgemm {

/// How rows come to groups: as many each, by chance, or by chance where the ith most frequent group has 1 / i of the
/// first one's.
enum class Distribution : std::uint8_t { equal, uniform, zipf };
inline constexpr std::array distributions{Distribution::equal, Distribution::uniform, Distribution::zipf};

/// Operands::group_rows of a normalised problem with groups: of offsets for all of its rows, of counts for as many as
/// are expected in all. The same for the same seed. By chance come those rows that are left when each group has
/// `least`, as many as there are for all or fewer.
std::vector<std::int32_t> drawn_group_rows(const Problem& normalised, Distribution distribution, std::uint64_t seed,
                                           std::int64_t least = 0);

/// The rows of D that groups have, half-open, for such a table of no other values.
struct RowRange {
  std::int64_t begin, end;
};
std::vector<RowRange> rows_of_groups(const Problem& normalised, const std::vector<std::int32_t>& table);

}  // namespace jitgemm
