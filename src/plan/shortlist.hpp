#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plan/ranking.hpp"

namespace jitgemm {

inline bool sooner(const RankedConfig& x, const RankedConfig& y) { return x.predicted_us < y.predicted_us; }

/// The first `limit` of a sorted list that are legal, but no tile and no schedule of a tile crowds out the others: what
/// the model has wrong about one of them, a measurement of another finds.
template <typename IsLegal>
std::vector<RankedConfig> shortlist(const std::vector<RankedConfig>& sorted, std::size_t limit,
                                    const IsLegal& is_legal) {
  const auto same_tile = [](KernelConfig x, const KernelConfig& y) {
    x.schedule = y.schedule, x.splits = y.splits, x.grid = y.grid, x.group_m = y.group_m;
    if (x.cluster_at_launch) x.cluster_m = y.cluster_m, x.cluster_n = y.cluster_n;
    return x == y;
  };
  std::vector<RankedConfig> chosen, others;
  for (const RankedConfig& ranked : sorted) {
    if (chosen.size() == limit) break;
    std::size_t of_tile = 0, of_schedule = 0;
    for (const RankedConfig& earlier : chosen) {
      if (!same_tile(earlier.config, ranked.config)) continue;
      ++of_tile;
      of_schedule += earlier.config.schedule == ranked.config.schedule;
    }
    const bool crowded = of_tile >= std::max<std::size_t>(1, limit / 4) || of_schedule >= 2;
    if (is_legal(ranked.config)) (crowded ? others : chosen).push_back(ranked);
  }
  for (std::size_t i = 0; i < others.size() && chosen.size() < limit; ++i) chosen.push_back(others[i]);
  return chosen;
}

}  // namespace jitgemm
