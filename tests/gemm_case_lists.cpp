#include "gemm_choices.hpp"

#include <algorithm>
#include <stdexcept>

#include "all_pairs.hpp"
#include "core/device_info.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "kernels/legality.hpp"

namespace jitgemm::test {
namespace {

const std::vector<Tile> portable_tiles{{128, 256, 64, 3, 8}, {64, 256, 32, 4, 4}, {128, 128, 32, 4, 4},
                                       {128, 64, 32, 4, 4},  {64, 128, 32, 2, 4}, {128, 32, 32, 4, 4},
                                       {64, 32, 32, 5, 2},   {32, 64, 64, 3, 2}};

constexpr int extent_classes = 6;
/// An extent that lies awkwardly in blocks of this size.
int extent(int block, int choice) {
  return std::array{1, 17, block - 1, block, block + 1, 2 * block + 31}[std::size_t(choice)];
}

std::vector<GemmCase> portable_pairs(int shapes) {
  const auto count = [](const auto& values) { return int(values.size()); };
  enum Axis {
    type,
    layout,
    batch,
    align_a,
    align_b,
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
    tile,
    m,
    n,
    k
  };
  const std::vector<int> sizes{count(sm80_types),
                               count(layouts),
                               batch_classes,
                               count(aligns),
                               count(aligns),
                               count(aligns),
                               count(aligns),
                               2,
                               2,
                               count(schedules),
                               count(group_sizes),
                               3,
                               3,
                               count(biases),
                               count(activations),
                               count(portable_tiles),
                               extent_classes,
                               extent_classes,
                               depth_classes};
  std::vector<GemmCase> cases;
  Random random(2024);
  const DeviceInfo device = device_info_for("sm_90a");
  // Not all types have all layouts and activations, and some tiles hold too much in registers.
  const Forbidden forbidden = [&](const std::vector<int>& row) {
    const auto at = [&row](const auto& values, Axis axis) { return values[std::size_t(std::max(0, row[axis]))]; };
    GemmCase gemm;
    Problem& p = gemm.problem;
    const Types& types = at(sm80_types, type);
    p = {.m = 64, .n = 64, .k = 64, .a = {types.a}, .b = {types.b}, .d = {types.d}};
    p.a.layout = at(layouts, layout)[0], p.b.layout = at(layouts, layout)[1];
    p.epilogue.activation = at(activations, activation);
    if (!why_types_unsupported(p).empty()) return true;
    place_all(gemm, {at(aligns, align_a), at(aligns, align_b), 16, 16}, true, 0);
    apply(row[tile] < 0 ? Tile{64, 64, 64, 3, 4} : at(portable_tiles, tile), p.a.type, gemm.config);
    return !why_illegal(gemm.config, normalise(p), device).empty();
  };
  for (std::vector<int> row : all_pairs(sizes, 2024, forbidden)) {
    const auto at = [&row](const auto& values, Axis axis) { return values[std::size_t(row[axis])]; };
    for (int shape = 0; shape < shapes; ++shape) {
      if (shape > 0) {  // what the kernel's text does not depend on
        for (const Axis axis : {by_pointer, slack, alpha, m, n, k}) row[axis] = random.between(0, sizes[axis] - 1);
      }
      GemmCase gemm;
      Problem& p = gemm.problem;
      KernelConfig& config = gemm.config;
      const Types& types = at(sm80_types, type);
      apply(at(portable_tiles, tile), types.a, config);
      apply(at(schedules, schedule), config);
      if (shape > 0 && config.grid > 0) config.grid = random.between(1, 13);
      config.group_m = at(group_sizes, group_m);
      p.a.type = types.a;
      p.b.type = types.b;
      p.d.type = types.d;
      p.a.layout = at(layouts, layout)[0];
      p.b.layout = at(layouts, layout)[1];
      p.m = extent(config.block_m, row[m]);
      p.n = extent(config.block_n, row[n]);
      p.k = depth(config.block_k, row[k]);
      apply_batch(row[batch], p, random);
      apply_epilogue(gemm, row[alpha], row[c], at(biases, bias), at(activations, activation), row[by_pointer] != 0);
      place_all(gemm, {at(aligns, align_a), at(aligns, align_b), at(aligns, align_c), at(aligns, align_d)},
                row[by_pointer] != 0, row[slack] != 0 ? 40 : 0);
      if (const std::string broken = why_illegal(config, normalise(p), device); !broken.empty())
        throw std::logic_error(to_string(gemm) + ": " + broken);
      cases.push_back(gemm);
    }
  }
  return cases;
}

}  // namespace

void apply(const Tile& tile, DataType a, KernelConfig& config) {
  config.block_m = tile.block_m;
  config.block_n = tile.block_n;
  config.block_k = tile.block_k * 2 / int(size_of(a));
  config.stages = tile.stages;
  config.warps = tile.warps;
}

void apply(const ScheduleChoice& choice, KernelConfig& config) {
  config.schedule = choice.schedule;
  config.splits = choice.splits;
  config.grid = choice.grid;
}

int depth(int block_k, int choice) {
  return std::array{1, 23, block_k, block_k + 1, 3 * block_k + 7, 7 * block_k - 1}[std::size_t(choice)];
}

void apply_batch(int choice, Problem& p, Random& random) {
  p.batch = 1;
  p.a.stride = p.b.stride = p.c.stride = p.d.stride = packed_stride;
  if (choice == 1) p.batch = 3;
  if (choice == 2) {
    p.batch = 2;
    (random.between(0, 1) ? p.a.stride : p.b.stride) = 0;
    if (random.between(0, 1)) p.c.stride = 0;
  }
}

void apply_epilogue(GemmCase& gemm, int alpha, int c, Bias bias, Activation activation, bool scaled) {
  Problem& p = gemm.problem;
  const auto at = [](const auto& values, int i) { return values[std::size_t(i)]; };
  const bool integers = p.d.type == s32;
  p.alpha = integers ? at(std::array{1, -3, 2}, alpha) : at(std::array{1.0, -0.75, 2.0}, alpha);
  p.beta = c == 0 ? 0 : integers ? at(std::array{5, 1, -2}, alpha) : at(std::array{0.5, 1.0, -2.0}, alpha);
  gemm.d_is_c = c == 2;
  p.epilogue.bias = bias;
  if (is_fp8(p.a.type) && scaled) gemm.scales = {0.5f, 4.0f, is_fp8(p.d.type) ? 0.25f : 0.0f};
  p.epilogue.activation = activation;
  p.epilogue.slope = 0.25;
}

std::vector<GemmCase> pairwise_cases(MainLoop main_loop, int shapes) {
  return main_loop == MainLoop::sm80 ? portable_pairs(shapes) : hopper_pairs(shapes);
}

std::vector<GemmCase> layout_cases(MainLoop main_loop) {
  const DeviceInfo device = device_info_for("sm_90a");
  std::vector<GemmCase> cases;
  for (const Types& types : sm80_types)
    for (const auto& [layout_a, layout_b] : layouts)
      for (const int block_k : {32, 64}) {
        GemmCase gemm;
        gemm.config.main_loop = main_loop;
        const bool tma = main_loop == MainLoop::sm90;
        apply(tma ? Tile{128, 128, block_k, 2, 8} : Tile{64, 64, block_k, 3, 4}, types.a, gemm.config);
        gemm.problem = {.m = tma ? 140 : 76,
                        .n = tma ? 150 : 90,
                        .k = 5 * gemm.config.block_k / 2,
                        .a = {.type = types.a, .layout = layout_a},
                        .b = {.type = types.b, .layout = layout_b},
                        .d = {types.d}};
        if (types.d == s32) gemm.problem.alpha = 0x40000001;  // wraps
        place_all(gemm, {16, 16, 16, 16}, true, 0);
        if (why_illegal(gemm.config, normalise(gemm.problem), device).empty()) cases.push_back(gemm);
      }
  return cases;
}

std::vector<GemmCase> product_cases(MainLoop main_loop) {
  struct Epilogue {
    double alpha, beta;
    bool d_is_c;
    Bias bias;
    Activation activation;
  };
  constexpr std::array epilogues{
      Epilogue{1, 0, false, Bias::none, Activation::none},
      Epilogue{-3, 0, false, Bias::none, Activation::relu},
      Epilogue{1, 2, false, Bias::along_m, Activation::gelu_tanh},
      Epilogue{2, 1, true, Bias::none, Activation::leaky_relu},
      Epilogue{1, 0, false, Bias::along_n, Activation::gelu_erf},
      Epilogue{-3, -2, true, Bias::along_n, Activation::silu},
  };
  constexpr std::array products{schedules[0], schedules[1], schedules[3], schedules[5], schedules[6], schedules[8]};
  const Tile tile = main_loop == MainLoop::sm80 ? Tile{64, 64, 64, 3, 4} : Tile{128, 128, 64, 3, 8};
  const DeviceInfo device = device_info_for("sm_90a");
  std::vector<GemmCase> cases;
  Random random(2025);
  for (const Types& types : sm80_types)
    for (const auto& [layout_a, layout_b] : layouts)
      for (const int align : aligns)
        for (const Epilogue& epilogue : epilogues)
          for (const ScheduleChoice& schedule : products) {
            KernelConfig config{.main_loop = main_loop};
            apply(tile, types.a, config);
            apply(schedule, config);
            config.group_m = 2;
            const std::array<std::array<int, 3>, 6> shapes{
                {{1, 1, 1},
                 {config.block_m + 1, config.block_n - 1, config.block_k + 1},
                 {17, 2 * config.block_n + 31, 3 * config.block_k + 7},
                 {2 * config.block_m + 31, 23, 5 * config.block_k - 1},
                 {config.block_m, config.block_n, 2 * config.block_k},
                 {2 * config.block_m - 1, config.block_n + 1, 23}}};
            for (const auto& [m, n, k] : shapes) {
              GemmCase gemm;
              gemm.config = config;
              gemm.problem = {.m = m,
                              .n = n,
                              .k = k,
                              .a = {.type = types.a, .layout = layout_a},
                              .b = {.type = types.b, .layout = layout_b},
                              .d = {types.d},
                              .alpha = epilogue.alpha,
                              .beta = epilogue.beta,
                              .epilogue = {.bias = epilogue.bias, .activation = epilogue.activation, .slope = 0.25}};
              apply_batch(int(cases.size() / 6 % 3), gemm.problem, random);
              gemm.d_is_c = epilogue.d_is_c;
              if (!why_types_unsupported(gemm.problem).empty()) continue;
              const int operand_align = main_loop == MainLoop::sm80 ? align : 16;
              place_all(gemm, {operand_align, operand_align, align, align}, cases.size() % 2 == 0,
                        cases.size() % 3 == 0 ? 40 : 0);
              if (why_illegal(gemm.config, normalise(gemm.problem), device).empty()) cases.push_back(gemm);
            }
          }
  return cases;
}

}  // namespace jitgemm::test
