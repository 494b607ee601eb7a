#include "gemm_cases.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "all_pairs.hpp"
#include "core/device_info.hpp"
#include "core/kernel_config.hpp"
#include "core/operand_matrix.hpp"
#include "core/packing.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "random.hpp"
#include "reference.hpp"

namespace jitgemm::test {
namespace {

constexpr std::array layouts{
    std::array{Layout::row_major, Layout::row_major}, std::array{Layout::row_major, Layout::column_major},
    std::array{Layout::column_major, Layout::row_major}, std::array{Layout::column_major, Layout::column_major}};
struct Types {
  DataType a, b, d;
};
constexpr std::array sm80_types{
    Types{f16, f16, f16},    Types{f16, f16, bf16},   Types{f16, f16, f32},     Types{bf16, bf16, f16},
    Types{bf16, bf16, bf16}, Types{bf16, bf16, f32},  Types{e4m3, e4m3, f16},   Types{e4m3, e5m2, bf16},
    Types{e5m2, e4m3, e4m3}, Types{e5m2, e5m2, e5m2}, Types{e4m3, e4m3, f32},   Types{tf32, tf32, f32},
    Types{s8, s8, s32},      Types{f32, f32, f32},    Types{f64, f64, f64}};
constexpr std::size_t sm90_type_count = 13;  // of them; wgmma has the rest not
constexpr std::array aligns{16, 8, 4, 2};    // bytes; of 8-bit elements 2 stands for 1
constexpr std::array activations{Activation::none,     Activation::relu,      Activation::leaky_relu,
                                 Activation::gelu_erf, Activation::gelu_tanh, Activation::silu};
constexpr std::array biases{Bias::none, Bias::along_n, Bias::along_m};
constexpr std::array group_sizes{0, 1, 2, 8};

struct ScheduleChoice {
  Schedule schedule;
  int splits, grid;
};
constexpr std::array schedules{
    ScheduleChoice{Schedule::data_parallel, 1, 0},     ScheduleChoice{Schedule::persistent, 1, 3},
    ScheduleChoice{Schedule::split_k, 2, 0},           ScheduleChoice{Schedule::split_k, 5, 7},
    ScheduleChoice{Schedule::stream_k, 1, 3},          ScheduleChoice{Schedule::stream_k, 1, 11},
    ScheduleChoice{Schedule::stream_k_one_tile, 1, 4}, ScheduleChoice{Schedule::stream_k_two_tile, 1, 2},
    ScheduleChoice{Schedule::stream_k_two_tile, 1, 3},
};

/// block_k in 16-bit elements.
struct Tile {
  int block_m, block_n, block_k, stages, warps;
};
const std::vector<Tile>& tiles(MainLoop main_loop) {
  static const std::vector<Tile> sm80{{128, 256, 64, 3, 8}, {64, 256, 32, 4, 4}, {128, 128, 32, 4, 4},
                                      {128, 64, 32, 4, 4},  {64, 128, 32, 2, 4}, {128, 32, 32, 4, 4},
                                      {64, 32, 32, 5, 2},   {32, 64, 64, 3, 2}};
  static const std::vector<Tile> sm90{
      {128, 128, 64, 4, 8}, {128, 256, 64, 4, 8}, {128, 192, 64, 2, 8}, {64, 64, 64, 5, 4},
      {64, 128, 64, 3, 4},  {64, 256, 64, 4, 4},  {128, 64, 64, 3, 8}};
  return main_loop == MainLoop::sm80 ? sm80 : sm90;
}

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

constexpr int extent_classes = 6;
/// An extent that lies awkwardly in blocks of this size.
int extent(int block, int choice) {
  return std::array{1, 17, block - 1, block, block + 1, 2 * block + 31}[std::size_t(choice)];
}
int depth(int block_k, int choice) {
  return std::array{1, 23, block_k, block_k + 1, 3 * block_k + 7, 7 * block_k - 1}[std::size_t(choice)];
}

std::int64_t inner_a(const Problem& p) { return p.layout_a == Layout::row_major ? p.k : p.m; }
std::int64_t inner_b(const Problem& p) { return p.layout_b == Layout::row_major ? p.n : p.k; }

/// Aligns every row start of an operand to `align` bytes, and some of them to no more: by the pointer, or by the
/// leading dimension, which is `slack` longer than packed.
void place(int align, bool by_pointer, std::int64_t inner, std::int64_t slack, DataType type, std::int64_t& ld,
           int& problem_align, int& offset) {
  const auto size = std::int64_t(size_of(type));
  align = align == 2 && size == 1 ? 1 : std::max(align, int(size));
  ld = (inner + slack) * size;
  ld = (ld + 15) / 16 * 16;
  offset = 0;
  if (align < 16 && by_pointer) offset = align;
  if (align < 16 && !by_pointer) ld += align;
  ld /= size;
  problem_align = align;
}

void place_all(GemmCase& gemm, std::array<int, 4> align, bool by_pointer, std::int64_t slack) {
  Problem& p = gemm.problem;
  const DataType c = matrix_c(p).type;
  gemm.d_is_c = gemm.d_is_c && c == p.d;
  place(align[0], by_pointer, inner_a(p), slack, p.a, p.lda, p.align_a, gemm.offset_a);
  place(align[1], !by_pointer, inner_b(p), slack, p.b, p.ldb, p.align_b, gemm.offset_b);
  place(align[2], !by_pointer, p.n, slack, c, p.ldc, p.align_c, gemm.offset_c);
  place(align[3], by_pointer, p.n, slack, p.d, p.ldd, p.align_d, gemm.offset_d);
  if (gemm.d_is_c) {
    p.ldc = p.ldd;
    p.stride_c = p.stride_d;
    p.align_c = p.align_d;
    gemm.offset_c = gemm.offset_d;
  }
  p = normalise(p);
}

/// All bits set is NaN in every type that has one.
std::vector<char> nan_image(std::size_t bytes) { return std::vector<char>(bytes, char(0xff)); }

void fill_elements(std::vector<char>& image, std::size_t offset, const OperandMatrix& s, Fill fill, int magnitude,
                   Random& random) {
  const std::int64_t matrices = s.stride == 0 ? 1 : s.batch;
  for (std::int64_t batch = 0; batch < matrices && !s.empty(); ++batch) {
    for (std::int64_t vector = 0; vector < s.vectors; ++vector) {
      for (std::int64_t i = 0; i < s.extent; ++i) {
        double x;
        if (fill == Fill::integers) {
          x = random.between(-magnitude, magnitude);
        } else if (s.type == s8) {
          x = random.between(-128, 127);
        } else {
          const std::uint64_t bits = random.next();
          x = -2;
          for (int part = 0; part < 64; part += 16) x += double(bits >> part & 0xffff) * 0x1p-16;
          x *= 1.7320508;
        }
        store(x, image.data() + offset, batch * s.stride + vector * s.ld + i, s.type);
      }
    }
  }
}

OperandMatrix bias_of(const Problem& p) {
  const std::int64_t elements = bias_elements(p);
  return {elements, 1, matrix_c(p).type, elements, 1, 0};
}

/// Strides of a batch: none, three in a row with gaps, two that share an operand.
void apply_batch(int choice, Problem& p, Random& random) {
  p.batch = 1;
  p.stride_a = p.stride_b = p.stride_c = p.stride_d = packed_stride;
  if (choice == 1) p.batch = 3;
  if (choice == 2) {
    p.batch = 2;
    (random.between(0, 1) ? p.stride_a : p.stride_b) = 0;
    if (random.between(0, 1)) p.stride_c = 0;
  }
}

}  // namespace

std::string to_string(const GemmCase& gemm) {
  std::string text = to_string(gemm.problem) + " | " + to_string(gemm.config);
  if (gemm.d_is_c) text += " | D is C";
  if (gemm.scales[0] != 0) text += " | scaled";
  return text;
}

bool exact_with_integers(const GemmCase& gemm) {
  const bool cut_off = is_fp8(gemm.problem.a) && gemm.config.main_loop == MainLoop::sm90 &&
                       gemm.problem.accumulation == Accumulation::fast;
  return gemm.problem.activation < Activation::gelu_erf && !cut_off;
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
                        .a = types.a,
                        .b = types.b,
                        .d = types.d,
                        .layout_a = layout_a,
                        .layout_b = layout_b};
        if (types.a == s8) gemm.problem.alpha = 0x40000001;  // wraps
        place_all(gemm, {16, 16, 16, 16}, true, 0);
        if (why_illegal(gemm.config, gemm.problem, device).empty()) cases.push_back(gemm);
      }
  return cases;
}

Scales scales_of(const GemmCase& gemm) {
  const auto or_one = [](float scale) { return scale == 0 ? 1.0 : double(scale); };
  return {or_one(gemm.scales[0]) * or_one(gemm.scales[1]), or_one(gemm.scales[2])};
}

std::vector<GemmCase> pairwise_cases(MainLoop main_loop, int shapes) {
  const bool tma = main_loop == MainLoop::sm90;
  const auto count = [](const auto& values) { return int(values.size()); };
  const int operand_aligns = tma ? 1 : count(aligns);
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
    accumulation,
    tile,
    m,
    n,
    k
  };
  const std::vector<int> sizes{tma ? int(sm90_type_count) : count(sm80_types),
                               count(layouts),
                               3,
                               operand_aligns,
                               operand_aligns,
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
                               tma ? 2 : 1,
                               count(tiles(main_loop)),
                               extent_classes,
                               extent_classes,
                               extent_classes};
  std::vector<GemmCase> cases;
  Random random(2024);
  const DeviceInfo device = device_info_for("sm_90a");
  // Not all types have all layouts and activations, some tiles hold too much in registers, and 8-bit products are promoted.
  const Forbidden forbidden = [&](std::size_t i, int x, std::size_t j, int y) {
    GemmCase gemm{.problem = {.m = 64, .n = 64, .k = 64}, .config = {.main_loop = main_loop}};
    Problem& p = gemm.problem;
    Tile its_tile = tma ? tiles(main_loop)[0] : Tile{64, 64, 64, 3, 4};
    if (tma) p.layout_b = Layout::column_major;  // what all types have
    const auto choose = [&](std::size_t axis, int choice) {
      const auto at = std::size_t(choice);
      if (axis == type) p.a = sm80_types[at].a, p.b = sm80_types[at].b, p.d = sm80_types[at].d;
      if (axis == layout) p.layout_a = layouts[at][0], p.layout_b = layouts[at][1];
      if (axis == activation) p.activation = activations[at];
      if (axis == tile) its_tile = tiles(main_loop)[at];
    };
    if ((i == accumulation && x != 0) || (j == accumulation && y != 0)) {
      p.accumulation = Accumulation::promoted;
      p.a = p.b = e4m3;
    }
    choose(i, x);
    choose(j, y);
    if (p.accumulation == Accumulation::promoted && !is_fp8(p.a)) return true;
    const auto its_align = [&](std::size_t axis) {
      const int choice = i == axis ? x : j == axis ? y : 0;
      return tma ? 16 : aligns[std::size_t(choice)];
    };
    if (!why_types_unsupported(p).empty()) return true;
    place_all(gemm, {its_align(align_a), its_align(align_b), 16, 16}, true, 0);
    apply(its_tile, p.a, gemm.config);
    return !why_illegal(gemm.config, p, device).empty();
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
      config.main_loop = main_loop;
      const Types& types = at(sm80_types, type);
      apply(at(tiles(main_loop), tile), types.a, config);
      apply(at(schedules, schedule), config);
      if (shape > 0 && config.grid > 0) config.grid = random.between(1, 13);
      config.group_m = at(group_sizes, group_m);
      p.a = types.a;
      p.b = types.b;
      p.d = types.d;
      p.layout_a = at(layouts, layout)[0];
      p.layout_b = at(layouts, layout)[1];
      p.m = extent(config.block_m, row[m]);
      p.n = extent(config.block_n, row[n]);
      p.k = depth(config.block_k, row[k]);
      apply_batch(row[batch], p, random);
      const bool integers = p.a == s8;
      p.alpha = integers ? at(std::array{1, -3, 2}, alpha) : at(std::array{1.0, -0.75, 2.0}, alpha);
      p.beta = row[c] == 0 ? 0 : integers ? at(std::array{5, 1, -2}, alpha) : at(std::array{0.5, 1.0, -2.0}, alpha);
      gemm.d_is_c = row[c] == 2;
      p.bias = at(biases, bias);
      if (is_fp8(p.a) && row[by_pointer] != 0) gemm.scales = {0.5f, 4.0f, is_fp8(p.d) ? 0.25f : 0.0f};
      p.activation = at(activations, activation);
      p.accumulation = Accumulation(row[accumulation]);
      p.slope = 0.25;
      place_all(gemm, {at(aligns, align_a), at(aligns, align_b), at(aligns, align_c), at(aligns, align_d)},
                row[by_pointer] != 0, row[slack] != 0 ? 40 : 0);
      if (const std::string broken = why_illegal(config, p, device); !broken.empty())
        throw std::logic_error(to_string(gemm) + ": " + broken);
      cases.push_back(gemm);
    }
  }
  return cases;
}

std::vector<GemmCase> packed_cases() {
  enum Axis { type, layout, batch, align_a, align_b, by_pointer, slack, schedule, all, m, n, k };
  constexpr std::array packed_schedules{schedules[0], schedules[3], schedules[5]};
  const std::vector<int> sizes{int(sm90_type_count), 4, 3, 4, 4, 2, 2, int(packed_schedules.size()), 2, extent_classes,
                               extent_classes,       extent_classes};
  Random random(2026);
  std::vector<GemmCase> cases;
  for (const std::vector<int>& row : all_pairs(sizes, 2026, [](std::size_t, int, std::size_t, int) { return false; })) {
    const auto at = [&row](Axis axis) { return std::size_t(row[axis]); };
    const Types& types = sm80_types[at(type)];
    GemmCase gemm;
    Problem& p = gemm.problem;
    KernelConfig& config = gemm.config;
    config.main_loop = MainLoop::sm90;
    apply(Tile{64, 64, 64, 3, 4}, types.a, config);
    apply(packed_schedules[at(schedule)], config);
    p = {.m = extent(config.block_m, row[m]),
         .n = extent(config.block_n, row[n]),
         .k = depth(config.block_k, row[k]),
         .a = types.a,
         .b = types.b,
         .d = types.d,
         .layout_a = layouts[at(layout)][0],
         .layout_b = layouts[at(layout)][1]};
    apply_batch(row[batch], p, random);
    place_all(gemm, {aligns[at(align_a)], aligns[at(align_b)], 16, 16}, row[by_pointer] != 0, row[slack] != 0 ? 40 : 0);
    config.pack_a = row[all] != 0 || needs_packing_a(p);
    config.pack_b = row[all] != 0 || needs_packing_b(p);
    config.swap_ab = cases.size() % 3 == 2;
    if (packs(config)) cases.push_back(gemm);
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
      Epilogue{1, 0, false, Bias::none, Activation::none},          Epilogue{-3, 0, false, Bias::none, Activation::relu},
      Epilogue{1, 2, false, Bias::along_m, Activation::gelu_tanh},  Epilogue{2, 1, true, Bias::none, Activation::leaky_relu},
      Epilogue{1, 0, false, Bias::along_n, Activation::gelu_erf},   Epilogue{-3, -2, true, Bias::along_n, Activation::silu},
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
            const std::array<std::array<int, 3>, 6> shapes{{{1, 1, 1},
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
                              .a = types.a,
                              .b = types.b,
                              .d = types.d,
                              .layout_a = layout_a,
                              .layout_b = layout_b,
                              .alpha = epilogue.alpha,
                              .beta = epilogue.beta,
                              .bias = epilogue.bias,
                              .activation = epilogue.activation,
                              .slope = 0.25};
              apply_batch(int(cases.size() / 6 % 3), gemm.problem, random);
              gemm.d_is_c = epilogue.d_is_c;
              if (!why_types_unsupported(gemm.problem).empty()) continue;
              const int operand_align = main_loop == MainLoop::sm80 ? align : 16;
              place_all(gemm, {operand_align, operand_align, align, align}, cases.size() % 2 == 0,
                        cases.size() % 3 == 0 ? 40 : 0);
              if (why_illegal(gemm.config, gemm.problem, device).empty()) cases.push_back(gemm);
            }
          }
  return cases;
}

GemmCase plain_case(const Problem& problem, const KernelConfig& config, std::array<int, 4> align, bool d_is_c) {
  GemmCase gemm;
  gemm.problem = problem;
  gemm.config = config;
  gemm.d_is_c = d_is_c;
  place_all(gemm, align, true, 0);
  return gemm;
}

GemmInputs make_inputs(const GemmCase& gemm, Fill fill, std::uint64_t seed) {
  const Problem& p = gemm.problem;
  Random random(seed);
  GemmInputs inputs;
  inputs.fill = fill;
  const auto make = [&](std::vector<char>& image, int offset, const OperandMatrix& s, bool is_read, int magnitude) {
    image = nan_image(std::size_t(offset) + std::size_t(s.batch_bytes()));
    if (is_read) fill_elements(image, std::size_t(offset), s, fill, magnitude, random);
  };
  make(inputs.a, gemm.offset_a, matrix_a(p), reads_ab(p), 3);
  make(inputs.b, gemm.offset_b, matrix_b(p), reads_ab(p), 3);
  make(inputs.c, gemm.offset_c, matrix_c(p), reads_c(p), 8);
  make(inputs.bias, 0, bias_of(p), p.bias != Bias::none, 8);
  inputs.d = nan_image(2 * d_guard_bytes + std::size_t(gemm.offset_d) + std::size_t(matrix_d(p).batch_bytes()));
  if (gemm.d_is_c) {
    std::copy(inputs.c.begin() + gemm.offset_c, inputs.c.end(),
              inputs.d.begin() + std::ptrdiff_t(d_guard_bytes) + gemm.offset_d);
  }
  return inputs;
}

std::string check(const GemmCase& gemm, const GemmInputs& inputs, const std::vector<char>& d) {
  const Problem& p = gemm.problem;
  const std::size_t begin = d_guard_bytes + std::size_t(gemm.offset_d);
  std::vector<char> beside = d;  // D's elements put back to what they were
  const auto row_bytes = std::size_t(p.n) * size_of(p.d);
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      const std::size_t at = begin + std::size_t(batch * p.stride_d + row * p.ldd) * size_of(p.d);
      std::memcpy(&beside[at], &inputs.d[at], row_bytes);
    }
  }
  if (beside != inputs.d) {
    const auto first = std::mismatch(beside.begin(), beside.end(), inputs.d.begin()).first - beside.begin();
    return "byte " + std::to_string(first - std::ptrdiff_t(begin)) + " from D's begin is written, beside its elements";
  }

  const Operands operands{.a = inputs.a.data() + gemm.offset_a,
                          .b = inputs.b.data() + gemm.offset_b,
                          .c = inputs.c.data() + gemm.offset_c,
                          .d = nullptr,
                          .bias = inputs.bias.data()};
  Reference expected = reference(p, operands, gemm.config.main_loop, scales_of(gemm));
  if (inputs.fill == Fill::integers && exact_with_integers(gemm)) {  // float64 is exact here, too: D is its rounding
    for (std::size_t i = 0; i < expected.d.size(); ++i) {
      double rounded;
      store(expected.d[i], &rounded, 0, p.d);
      expected.d[i] = load(&rounded, 0, p.d);
      expected.bound[i] = 0;
    }
  }
  return violation(expected, p, d.data() + begin);
}

std::string run_and_check(GemmDevice& device, const GemmCase& gemm, Fill fill, std::uint64_t seed) {
  const auto report = [&](const std::string& what) {
    return to_string(gemm) + ", inputs " + std::to_string(seed) + ": " + what;
  };
  try {
    const GemmInputs inputs = make_inputs(gemm, fill, seed);
    const std::string wrong = check(gemm, inputs, device.run(gemm, inputs));
    return wrong.empty() ? "" : report(wrong);
  } catch (const Error& error) {
    return report(std::string(error.what()) + "\n" + error.log());
  }
}

}  // namespace jitgemm::test
