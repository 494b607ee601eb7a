#include "plan/ranking.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/problem.hpp"
#include "kernels/legality.hpp"
#include "plan/candidates.hpp"
#include "plan/candidates_sm90.hpp"
#include "plan/constraints.hpp"
#include "plan/cost_model.hpp"
#include "plan/cost_model_sm90.hpp"

namespace jitgemm {
namespace {

bool sooner(const RankedConfig& x, const RankedConfig& y) { return x.predicted_us < y.predicted_us; }

/// The first `limit` of a sorted list that are legal, but no tile and no schedule of a tile crowds out the others: what
/// the model has wrong about one of them, a measurement of another finds.
template <typename IsLegal>
std::vector<RankedConfig> shortlist(const std::vector<RankedConfig>& sorted, std::size_t limit,
                                    const IsLegal& is_legal) {
  const auto same_tile = [](KernelConfig x, const KernelConfig& y) {
    x.schedule = y.schedule, x.splits = y.splits, x.grid = y.grid, x.group_m = y.group_m;
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

/// Of the best schedules: first tiles, by the ways to deal out their work that decide most, then all schedules of the
/// best of them, of which the legal ones are kept.
std::vector<RankedConfig> rank_sm90(const Problem& problem, const RatedDevice& device, std::size_t limit,
                                    const ConstraintFilter* filter) {
  const std::array<TilesSm90, 2> forms = tiles_sm90(problem, device);
  struct Tile {
    double us;
    const KernelConfig* config;
    std::size_t form, index;
  };
  const std::array models{CostModelSm90(forms[0].problem, device), CostModelSm90(forms[1].problem, device)};
  const std::array packing_us{predict_packing_us(forms[0].form, problem, device),
                              predict_packing_us(forms[1].form, problem, device)};
  std::vector<Tile> tiles;
  tiles.reserve(forms[0].tiles.size() + forms[1].tiles.size());
  for (std::size_t form : {0, 1}) {
    for (const KernelConfig& tile : forms[form].tiles)
      tiles.push_back({models[form].tile_us(tile, filter), &tile, form, tiles.size()});
  }
  if (filter) std::erase_if(tiles, [](const Tile& tile) { return tile.us == std::numeric_limits<double>::infinity(); });
  const std::size_t kept = std::min(tiles.size(), std::max<std::size_t>(16, 2 * limit));
  std::partial_sort(tiles.begin(), tiles.begin() + std::ptrdiff_t(kept), tiles.end(),
                    [](const Tile& x, const Tile& y) { return x.us != y.us ? x.us < y.us : x.index < y.index; });
  tiles.resize(kept);
  std::ranges::sort(tiles, {}, &Tile::index);  // so that equals stay in the order of candidates()

  std::vector<RankedConfig> ranked;
  ranked.reserve(4 * tiles.size());
  for (const Tile& tile : tiles) {
    for (const KernelConfig& config : schedules_sm90(*tile.config, forms[tile.form].problem, device)) {
      if (!filter || filter->allows(config))
        ranked.push_back({config, forms[tile.form].whole ? packing_us[tile.form] + models[tile.form].us(config)
                                                         : predict_us(config, problem, device)});
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), sooner);
  return shortlist(ranked, limit, [&](const KernelConfig& c) { return why_illegal(c, problem, device).empty(); });
}

/// The candidates that are allowed, or so many of the best of them.
std::vector<RankedConfig> predict_all(const Problem& problem, const RatedDevice& device, std::size_t limit,
                                      const ConstraintFilter* filter = nullptr) {
  // The portable loop was never the fastest where the Hopper loop is legal: 0 of 800 tuned shapes.
  std::vector<RankedConfig> ranked;
  if (limit > 0 && !device.emulated) ranked = rank_sm90(problem, device, limit, filter);
  if (!ranked.empty()) return ranked;
  for (const KernelConfig& config : candidates(problem, device)) {
    if (!filter || filter->allows(config)) ranked.push_back({config, predict_us(config, problem, device)});
  }
  return ranked;
}

std::vector<RankedConfig> predict_all_within(const Problem& problem, const RatedDevice& whole, std::size_t limit,
                                             const Constraints& constraints) {
  const RatedDevice device = part_of(whole, constraints);
  const ConstraintFilter filter(constraints, problem, device);
  std::vector<RankedConfig> ranked = predict_all(problem, device, limit, &filter);
  if (const auto& config = filter.batch_invariant_sm90(); ranked.empty() && config)
    ranked.push_back({*config, predict_us(*config, problem, device)});
  return ranked;
}

}  // namespace

std::vector<RankedConfig> rank(const Problem& problem, const RatedDevice& device, std::size_t limit,
                               const Constraints& constraints) {
  std::vector<RankedConfig> ranked = constrain(constraints) ? predict_all_within(problem, device, limit, constraints)
                                                            : predict_all(problem, device, limit);
  std::stable_sort(ranked.begin(), ranked.end(), sooner);
  if (limit == 0 || limit >= ranked.size()) return ranked;
  ranked = shortlist(ranked, limit, [](const KernelConfig&) { return true; });
  std::stable_sort(ranked.begin(), ranked.end(), sooner);
  return ranked;
}

}  // namespace jitgemm
