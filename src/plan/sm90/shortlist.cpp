#include "plan/sm90/shortlist.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/kernel_problem.hpp"
#include "kernels/legality.hpp"
#include "kernels/packing.hpp"
#include "plan/cost_model.hpp"
#include "plan/shortlist.hpp"
#include "plan/sm90/candidates.hpp"
#include "plan/sm90/cost_model.hpp"

namespace jitgemm {
namespace {

/// Tiles whose schedules are looked at: at least so many, so that a short list of up to 12 starts as a list of 1 does.
constexpr std::size_t fewest_tiles = 24;

/// CostModelSm90::tile_us() where operands are packed in slabs, whose sizes and number are the tile's own.
double tile_us_in_slabs(const KernelConfig& tile, const NormalProblem& problem, const RatedDevice& device,
                        const ConstraintFilter* filter) {
  const Slab slab = slab_of(problem, tile);
  const KernelProblem of_kernel = kernel_problem(slab_problem(problem, slab), tile);
  return double(slab_count(problem, slab)) * CostModelSm90(of_kernel, device).tile_us(tile, filter) +
         predict_packing_us(tile, problem, device);
}

}  // namespace

std::vector<RankedConfig> shortlist_sm90(const NormalProblem& problem, const RatedDevice& device, std::size_t limit,
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
      tiles.push_back(
          {forms[form].whole ? models[form].tile_us(tile, filter) : tile_us_in_slabs(tile, problem, device, filter),
           &tile, form, tiles.size()});
  }
  if (filter) std::erase_if(tiles, [](const Tile& tile) { return tile.us == std::numeric_limits<double>::infinity(); });
  const std::size_t kept = std::min(tiles.size(), std::max(fewest_tiles, 2 * limit));
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

}  // namespace jitgemm
