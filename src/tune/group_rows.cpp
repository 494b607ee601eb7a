#include "tune/group_rows.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "core/groups.hpp"

namespace jitgemm {

std::vector<std::int32_t> drawn_group_rows(const Problem& p, Distribution distribution, std::uint64_t seed,
                                           std::int64_t least) {
  if (p.batch == 0) return {};
  const auto groups = std::size_t(p.batch);
  const bool by_offsets = p.grouping != Grouping::counts;
  const std::int64_t rows = p.grouping == Grouping::along_k ? p.k
                            : by_offsets                    ? p.m
                                                            : p.batch * std::min(p.m, expected_rows(p));
  std::vector<std::int64_t> sizes(groups, 0);
  if (distribution == Distribution::equal) {
    for (std::size_t g = 0; g < groups; ++g) sizes[g] = rows / p.batch + (std::int64_t(g) < rows % p.batch ? 1 : 0);
  } else {
    std::mt19937_64 random(seed);
    std::vector<double> until(groups);  // of the groups' shares, in sum
    double sum = 0;
    for (std::size_t g = 0; g < groups; ++g)
      until[g] = sum += distribution == Distribution::zipf ? 1 / double(g + 1) : 1;
    std::ranges::fill(sizes, least);
    for (std::int64_t row = least * p.batch; row < rows; ++row) {
      const double at = double(random() >> 11) * 0x1p-53 * sum;
      ++sizes[std::min(groups - 1, std::size_t(std::upper_bound(until.begin(), until.end(), at) - until.begin()))];
    }
    for (std::size_t g = groups; g > 1; --g) std::swap(sizes[g - 1], sizes[random() % g]);
  }
  std::vector<std::int32_t> table;
  std::int64_t end = 0;
  for (const std::int64_t size : sizes) table.push_back(std::int32_t(by_offsets ? end += size : std::min(size, p.m)));
  return table;
}

std::vector<RowRange> rows_of_groups(const Problem& p, const std::vector<std::int32_t>& table) {
  std::vector<RowRange> ranges;
  std::int64_t end = 0;
  for (const std::int32_t x : table) {
    ranges.push_back({p.grouping == Grouping::counts ? 0 : end, x});
    end = x;
  }
  return ranges;
}

}  // namespace jitgemm
