#include "gemm_cases.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "all_pairs.hpp"
#include "core/device_info.hpp"
#include "core/kernel_config.hpp"
#include "core/problem.hpp"
#include "random.hpp"
#include "reference.hpp"

namespace jitgemm::test {
namespace {

constexpr std::array layouts{
    std::array{Layout::row_major, Layout::row_major}, std::array{Layout::row_major, Layout::column_major},
    std::array{Layout::column_major, Layout::row_major}, std::array{Layout::column_major, Layout::column_major}};
constexpr std::array types{f16, bf16};
constexpr std::array types_d{f16, bf16, f32};
constexpr std::array aligns{16, 8, 4, 2};
constexpr std::array activations{Activation::none, Activation::relu, Activation::leaky_relu};
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

struct Tile {
  int block_m, block_n, block_k, stages, warps;
};
const std::vector<Tile>& tiles(MainLoop main_loop) {
  static const std::vector<Tile> sm80{{128, 256, 64, 3, 8}, {64, 256, 32, 4, 4}, {128, 128, 32, 4, 4},
                                      {128, 64, 32, 4, 4},  {64, 128, 32, 2, 4}, {128, 32, 32, 4, 4},
                                      {64, 32, 32, 5, 2},   {32, 64, 64, 3, 2}};
  static const std::vector<Tile> sm90{
      {128, 128, 64, 4, 8}, {128, 256, 64, 4, 8}, {128, 128, 64, 2, 8}, {128, 256, 64, 3, 8}};
  return main_loop == MainLoop::sm80 ? sm80 : sm90;
}

void apply(const Tile& tile, KernelConfig& config) {
  config.block_m = tile.block_m;
  config.block_n = tile.block_n;
  config.block_k = tile.block_k;
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
  align = std::max(align, int(size));
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
  place(align[0], by_pointer, inner_a(p), slack, p.a, p.lda, p.align_a, gemm.offset_a);
  place(align[1], !by_pointer, inner_b(p), slack, p.b, p.ldb, p.align_b, gemm.offset_b);
  place(align[2], !by_pointer, p.n, slack, p.d, p.ldc, p.align_c, gemm.offset_c);
  place(align[3], by_pointer, p.n, slack, p.d, p.ldd, p.align_d, gemm.offset_d);
  if (gemm.d_is_c) {
    p.ldc = p.ldd;
    p.align_c = p.align_d;
    gemm.offset_c = gemm.offset_d;
  }
  p = normalise(p);
}

struct Span {
  std::int64_t extent, vectors, ld, bytes;
};
Span span(std::int64_t extent, std::int64_t vectors, std::int64_t ld, DataType type) {
  const bool empty = extent == 0 || vectors == 0;
  return {extent, vectors, ld, empty ? 0 : ((vectors - 1) * ld + extent) * std::int64_t(size_of(type))};
}
Span span_a(const Problem& p) {
  return p.layout_a == Layout::row_major ? span(p.k, p.m, p.lda, p.a) : span(p.m, p.k, p.lda, p.a);
}
Span span_b(const Problem& p) {
  return p.layout_b == Layout::row_major ? span(p.n, p.k, p.ldb, p.b) : span(p.k, p.n, p.ldb, p.b);
}
Span span_c(const Problem& p) { return span(p.n, p.m, p.ldc, p.d); }
Span span_d(const Problem& p) { return span(p.n, p.m, p.ldd, p.d); }

/// All bits set is NaN in every type.
std::vector<char> nan_image(std::size_t bytes) { return std::vector<char>(bytes, char(0xff)); }

void fill_elements(std::vector<char>& image, std::size_t offset, const Span& s, DataType type, Fill fill, int magnitude,
                   Random& random) {
  for (std::int64_t vector = 0; vector < s.vectors; ++vector) {
    for (std::int64_t i = 0; i < s.extent; ++i) {
      double x;
      if (fill == Fill::integers) {
        x = random.between(-magnitude, magnitude);
      } else {
        const std::uint64_t bits = random.next();
        x = -2;
        for (int part = 0; part < 64; part += 16) x += double(bits >> part & 0xffff) * 0x1p-16;
        x *= 1.7320508;
      }
      store(x, image.data() + offset, vector * s.ld + i, type);
    }
  }
}

}  // namespace

std::string to_string(const GemmCase& gemm) {
  std::string text = to_string(gemm.problem) + " | " + to_string(gemm.config);
  if (gemm.d_is_c) text += " | D is C";
  return text;
}

std::vector<GemmCase> pairwise_cases(MainLoop main_loop, int shapes) {
  const bool tma = main_loop == MainLoop::sm90;
  const auto count = [](const auto& values) { return int(values.size()); };
  const int operand_aligns = tma ? 1 : count(aligns);
  enum Axis {
    type,
    type_d,
    layout,
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
  const std::vector<int> sizes{count(types),
                               count(types_d),
                               count(layouts),
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
                               2,
                               count(activations),
                               count(tiles(main_loop)),
                               extent_classes,
                               extent_classes,
                               extent_classes};
  std::vector<GemmCase> cases;
  Random random(2024);
  // Some tiles hold too much in registers for 2-byte aligned operands.
  const Forbidden forbidden = [&](std::size_t i, int x, std::size_t j, int y) {
    if (j != tile || (i != align_a && i != align_b)) return false;
    Problem problem = normalise({.m = 64, .n = 64, .k = 64});
    (i == align_a ? problem.align_a : problem.align_b) = tma ? 16 : aligns[std::size_t(x)];
    KernelConfig config{.main_loop = main_loop};
    apply(tiles(main_loop)[std::size_t(y)], config);
    return !why_illegal(config, problem, device_info_for("sm_90a")).empty();
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
      apply(at(tiles(main_loop), tile), config);
      apply(at(schedules, schedule), config);
      if (shape > 0 && config.grid > 0) config.grid = random.between(1, 13);
      config.group_m = at(group_sizes, group_m);
      p.a = p.b = at(types, type);
      p.d = at(types_d, type_d);
      p.layout_a = at(layouts, layout)[0];
      p.layout_b = at(layouts, layout)[1];
      p.m = extent(config.block_m, row[m]);
      p.n = extent(config.block_n, row[n]);
      p.k = depth(config.block_k, row[k]);
      p.alpha = at(std::array{1.0, -0.75, 2.0}, alpha);
      p.beta = row[c] == 0 ? 0 : at(std::array{0.5, 1.0, -2.0}, alpha);
      gemm.d_is_c = row[c] == 2;
      p.bias = row[bias] != 0;
      p.activation = at(activations, activation);
      p.slope = 0.25;
      place_all(gemm, {at(aligns, align_a), at(aligns, align_b), at(aligns, align_c), at(aligns, align_d)},
                row[by_pointer] != 0, row[slack] != 0 ? 40 : 0);
      cases.push_back(gemm);
    }
  }
  return cases;
}

std::vector<GemmCase> product_cases(MainLoop main_loop) {
  struct Epilogue {
    double alpha, beta;
    bool d_is_c, bias;
    Activation activation;
  };
  constexpr std::array epilogues{
      Epilogue{1, 0, false, false, Activation::none},      Epilogue{-0.75, 0, false, false, Activation::relu},
      Epilogue{1, 0.5, false, false, Activation::none},    Epilogue{2, 1, true, false, Activation::leaky_relu},
      Epilogue{1, 0, false, true, Activation::leaky_relu}, Epilogue{-0.75, -2, true, true, Activation::relu},
  };
  constexpr std::array products{schedules[0], schedules[1], schedules[3], schedules[5], schedules[6], schedules[8]};
  const Tile tile = main_loop == MainLoop::sm80 ? Tile{64, 64, 32, 3, 4} : Tile{128, 128, 64, 3, 8};
  const std::array<std::array<int, 3>, 6> shapes{{{1, 1, 1},
                                                  {tile.block_m + 1, tile.block_n - 1, tile.block_k + 1},
                                                  {17, 2 * tile.block_n + 31, 3 * tile.block_k + 7},
                                                  {2 * tile.block_m + 31, 23, 5 * tile.block_k - 1},
                                                  {tile.block_m, tile.block_n, 2 * tile.block_k},
                                                  {2 * tile.block_m - 1, tile.block_n + 1, 23}}};
  std::vector<GemmCase> cases;
  for (const DataType type : types)
    for (const DataType type_d : types_d)
      for (const auto& [layout_a, layout_b] : layouts)
        for (const int align : aligns)
          for (const Epilogue& epilogue : epilogues)
            for (const ScheduleChoice& schedule : products)
              for (const auto& [m, n, k] : shapes) {
                GemmCase gemm;
                gemm.config.main_loop = main_loop;
                apply(tile, gemm.config);
                apply(schedule, gemm.config);
                gemm.config.group_m = 2;
                gemm.problem = {.m = m,
                                .n = n,
                                .k = k,
                                .a = type,
                                .b = type,
                                .d = type_d,
                                .layout_a = layout_a,
                                .layout_b = layout_b,
                                .alpha = epilogue.alpha,
                                .beta = epilogue.beta,
                                .bias = epilogue.bias,
                                .activation = epilogue.activation,
                                .slope = 0.25};
                gemm.d_is_c = epilogue.d_is_c;
                const int operand_align = main_loop == MainLoop::sm80 ? align : 16;
                place_all(gemm, {operand_align, operand_align, align, align}, cases.size() % 2 == 0,
                          cases.size() % 3 == 0 ? 40 : 0);
                cases.push_back(gemm);
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
  const auto make = [&](std::vector<char>& image, int offset, const Span& s, DataType type, bool is_read,
                        int magnitude) {
    image = nan_image(std::size_t(offset) + std::size_t(s.bytes));
    if (is_read) fill_elements(image, std::size_t(offset), s, type, fill, magnitude, random);
  };
  make(inputs.a, gemm.offset_a, span_a(p), p.a, reads_ab(p), 3);
  make(inputs.b, gemm.offset_b, span_b(p), p.b, reads_ab(p), 3);
  make(inputs.c, gemm.offset_c, span_c(p), p.d, reads_c(p), 8);
  make(inputs.bias, 0, span(p.n, 1, p.n, p.d), p.d, p.bias, 8);
  inputs.d = nan_image(2 * d_guard_bytes + std::size_t(gemm.offset_d) + std::size_t(span_d(p).bytes));
  if (gemm.d_is_c) {
    std::copy(inputs.c.begin() + gemm.offset_c, inputs.c.end(),
              inputs.d.begin() + std::ptrdiff_t(d_guard_bytes) + gemm.offset_d);
  }
  return inputs;
}

std::string check(const GemmCase& gemm, const GemmInputs& inputs, const std::vector<char>& d) {
  const Problem& p = gemm.problem;
  const std::size_t begin = d_guard_bytes + std::size_t(gemm.offset_d);
  const Span s = span_d(p);

  std::vector<char> beside = d;  // D's elements put back to what they were
  const auto row_bytes = std::size_t(s.extent) * size_of(p.d);
  for (std::int64_t row = 0; row < s.vectors; ++row) {
    const std::size_t at = begin + std::size_t(row * s.ld) * size_of(p.d);
    std::memcpy(&beside[at], &inputs.d[at], row_bytes);
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
  Reference expected = reference(p, operands, gemm.config.main_loop);
  if (inputs.fill == Fill::integers) {  // float64 is exact here, and so is f32: D is its rounding
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
