#include <algorithm>
#include <stdexcept>

#include "all_pairs.hpp"
#include "core/device_info.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "gemm_choices.hpp"
#include "kernels/legality.hpp"
#include "kernels/packing.hpp"
#include "kernels/parameters.hpp"

namespace jitgemm::test {
namespace {

/// A tile's rows and who multiplies them.
struct Rows {
  int block_m, warps;
  bool ping_pong;
};
constexpr std::array row_choices{Rows{64, 4, false},  Rows{128, 8, false}, Rows{192, 12, false}, Rows{256, 8, false},
                                 Rows{128, 4, false}, Rows{64, 8, true},   Rows{128, 8, true}};
constexpr std::array widths{16, 40, 72, 96, 128, 160, 200, 256};

struct Cluster {
  int m, n, k;
};
constexpr std::array clusters{Cluster{1, 1, 1}, Cluster{2, 1, 1}, Cluster{1, 2, 1}, Cluster{2, 2, 1}, Cluster{4, 1, 1},
                              Cluster{4, 2, 1}, Cluster{1, 1, 2}, Cluster{1, 1, 4}, Cluster{2, 1, 2}, Cluster{1, 2, 4}};

/// How an operand is given: where it is, or packed from rows of such an alignment.
struct Operand {
  bool packed;
  int align;
};
constexpr std::array operands{Operand{false, 16}, Operand{true, 16}, Operand{true, 8}, Operand{true, 4},
                              Operand{true, 2}};
constexpr std::array stage_choices{2, 3, 5};

enum Axis {
  type,
  layout,
  batch,
  operand_a,
  operand_b,
  align_c,
  align_d,
  by_pointer,
  slack,
  schedule,
  group_m,
  alpha,
  c,
  bias,
  activation,
  accumulation,
  rows,
  width,
  cluster,
  at_launch,
  swapped,
  stages,
  m,
  n,
  k
};
const std::vector<int> axis_sizes{int(sm90_type_count),
                                  int(layouts.size()),
                                  batch_classes,
                                  int(operands.size()),
                                  int(operands.size()),
                                  int(aligns.size()),
                                  int(aligns.size()),
                                  2,
                                  2,
                                  int(schedules.size()),
                                  int(group_sizes.size()),
                                  3,
                                  3,
                                  int(biases.size()),
                                  int(activations.size()),
                                  2,
                                  int(row_choices.size()),
                                  int(widths.size()),
                                  int(clusters.size()),
                                  2,
                                  2,
                                  int(stage_choices.size()),
                                  6,
                                  6,
                                  depth_classes};

/// An extent that lies awkwardly in blocks of this size and in clusters of so many.
int extent(int block, int cluster_blocks, int choice) {
  return std::array{1,
                    17,
                    block - 1,
                    cluster_blocks * block,
                    cluster_blocks * block + 1,
                    (cluster_blocks + 1) * block + 31}[std::size_t(choice)];
}

/// Takes the next number of stages that is legal, as the rows' own may be too many for shared memory, or too few for
/// the partial sums of a cluster that splits k. Returns why there is none.
std::string fit_stages(KernelConfig& config, const NormalProblem& problem, const DeviceInfo& device) {
  const int wanted = config.stages;
  std::string why;
  for (const int step : {0, -1, -2, -3, 1, 2, 3}) {
    config.stages = wanted + step;
    why = why_illegal(config, problem, device);
    if (why.empty()) break;
  }
  return why;
}

/// A row's case; choices that are not made are those that leave most others. Returns why it is illegal.
std::string make_case(const std::vector<int>& row, Random& random, GemmCase& gemm) {
  static const DeviceInfo device = device_info_for("sm_90a");
  const auto at = [&row](const auto& values, Axis axis, int unmade) {
    return values[std::size_t(row[axis] < 0 ? unmade : row[axis])];
  };
  gemm = {};
  Problem& p = gemm.problem;
  KernelConfig& config = gemm.config;
  const Accumulation accumulated = Accumulation(std::max(0, row[accumulation]));
  const Types types = at(sm80_types, type, accumulated == Accumulation::promoted ? first_8_bit_type : 0);
  if (accumulated == Accumulation::promoted && !is_fp8(types.a)) return "promoted sums are of 8-bit products";
  const Rows tile_rows = at(row_choices, rows, 0);
  const Cluster blocks = at(clusters, cluster, 0);
  config = {.main_loop = MainLoop::sm90,
            .block_m = tile_rows.block_m,
            .block_n = row[width] < 0 ? 64 : at(widths, width, 0),
            .block_k = 128 / int(size_of(types.a)),
            .group_m = at(group_sizes, group_m, 0),
            .stages = at(stage_choices, stages, 2),
            .warps = tile_rows.warps,
            .cluster_m = blocks.m,
            .cluster_n = blocks.n,
            .cluster_k = blocks.k,
            .ping_pong = tile_rows.ping_pong,
            .swap_ab = row[swapped] == 1,
            .pack_a = at(operands, operand_a, 0).packed,
            .pack_b = at(operands, operand_b, 0).packed,
            .cluster_at_launch = row[at_launch] == 1};
  apply(at(schedules, schedule, 0), config);
  config.grid *= cluster_size_of(config);
  p.a.type = types.a, p.b.type = types.b, p.d.type = types.d;
  p.accumulation = accumulated;
  const int unmade_layout = size_of(p.a.type) != 2 ? 1 : config.swap_ab ? 2 : 0;
  p.a.layout = at(layouts, layout, unmade_layout)[0];
  p.b.layout = at(layouts, layout, unmade_layout)[1];
  p.m = extent(config.swap_ab ? config.block_n : config.block_m, config.swap_ab ? blocks.n : blocks.m,
               std::max(0, row[m]));
  p.n = extent(config.swap_ab ? config.block_m : config.block_n, config.swap_ab ? blocks.m : blocks.n,
               std::max(0, row[n]));
  p.k = depth(config.block_k, row[k] < 0 ? depth_classes - 1 : row[k]);
  apply_batch(std::max(0, row[batch]), p, random);
  apply_epilogue(gemm, std::max(0, row[alpha]), std::max(0, row[c]), at(biases, bias, 0),
                 at(activations, activation, 0), row[by_pointer] == 1);
  if (const std::string why = why_types_unsupported(p); !why.empty()) return why;
  place_all(gemm,
            {at(operands, operand_a, 0).align, at(operands, operand_b, 0).align, at(aligns, align_c, 0),
             at(aligns, align_d, 0)},
            row[by_pointer] == 1, row[slack] == 1 ? 40 : 0);
  return fit_stages(config, normalise(p), device);
}

}  // namespace

std::vector<GemmCase> hopper_pairs(int shapes) {
  Random random(2025);
  GemmCase gemm;
  const auto forbidden = [&](const std::vector<int>& row) { return !make_case(row, random, gemm).empty(); };
  std::vector<GemmCase> cases;
  for (std::vector<int> row : all_pairs(axis_sizes, 2025, forbidden)) {
    for (int shape = 0; shape < shapes; ++shape) {
      std::vector<int> other = row;
      if (shape > 0) {  // what the kernel's text does not depend on
        for (const Axis axis : {by_pointer, slack, alpha, m, n, k})
          other[axis] = random.between(0, axis_sizes[axis] - 1);
      }
      if (!make_case(other, random, gemm).empty()) {
        other[k] = row[k];
        if (const std::string why = make_case(other, random, gemm); !why.empty())
          throw std::logic_error(to_string(gemm) + ": " + why);
      }
      if (shape > 0 && gemm.config.grid > 0) gemm.config.grid = random.between(1, 13) * cluster_size_of(gemm.config);
      cases.push_back(gemm);
    }
  }
  return cases;
}

}  // namespace jitgemm::test
