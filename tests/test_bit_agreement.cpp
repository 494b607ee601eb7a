// Where the sums are exact, D has the bits of the formula that templates/README.md documents, on the emulator and on a
// GPU: every operation behind the sums is rounded as it says, whatever the tile, the schedule and the side of an edge.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/device_info.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "gemm_cases.hpp"
#include "gemm_choices.hpp"
#include "jitgemm/error.hpp"
#include "kernels/legality.hpp"
#include "random.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

// The scalars that rounding shows in: no powers of two. Each with each activation in time, as their counts have no
// common divisor.
struct Addends {
  double alpha, beta;
  Bias bias;
};
constexpr std::array addends{
    Addends{0.3, 0, Bias::none},    Addends{1, 0.7, Bias::none},       Addends{0.3, 0.7, Bias::none},
    Addends{0.3, 0, Bias::along_n}, Addends{0.3, 0, Bias::along_m},    Addends{0.3, 0.7, Bias::along_n},
    Addends{0.03, 0, Bias::none},   Addends{-3, 0, Bias::along_n},     Addends{0.3, 0.9, Bias::along_m},
    Addends{0.7, 0, Bias::none},    Addends{0.3, -0.7, Bias::along_m},
};
static_assert(std::gcd(addends.size(), activations.size()) == 1);

/// block_k is of 16-bit elements. What a tile can be cut and put together by.
const std::vector<std::string> sm90_configs{
    "sm90 128x64x64 stages=3 warps=8 schedule=data_parallel",
    "sm90 64x48x64 stages=3 warps=4 swap_ab=true schedule=persistent grid=3",
    "sm90 64x32x64 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=3",
    "sm90 64x32x64 stages=4 warps=4 cluster=1x1x2 schedule=data_parallel",
    "sm90 128x32x64 stages=3 warps=8 cluster=2x1x1 swap_ab=true schedule=split_k splits=2",
    "sm90 64x64x64 stages=3 warps=4 schedule=stream_k grid=4",
};
const std::vector<std::string> sm80_configs{
    "sm80 64x32x32 stages=3 warps=4 schedule=data_parallel",
    "sm80 64x64x32 stages=3 warps=4 schedule=split_k splits=3",
    "sm80 32x64x64 stages=3 warps=2 schedule=stream_k grid=5",
};

/// Every type with `kernels` epilogues in turn, each with another activation and configuration.
std::vector<GemmCase> cases(MainLoop main_loop, int kernels) {
  const std::vector<std::string>& configs = main_loop == MainLoop::sm90 ? sm90_configs : sm80_configs;
  const DeviceInfo device = device_info_for("sm_90a");
  std::vector<GemmCase> chosen;
  std::size_t turn = main_loop == MainLoop::sm90 ? 0 : 4;
  for (const Types& types : sm80_types)
    for (int left = kernels, tries = 0; left > 0 && tries < 40; ++tries, ++turn) {
      const Addends& its = addends[turn % addends.size()];
      GemmCase gemm;
      gemm.config = parse_kernel_config(configs[turn % configs.size()]);
      gemm.config.block_k = gemm.config.block_k * 2 / int(size_of(types.a));
      Problem& p = gemm.problem;
      // K so small that sums fit into the 13 bits that wgmma keeps of 8-bit products. Rows of D that TMA stores, and
      // odd ones.
      p = {.m = 147, .n = turn % 2 == 0 ? 136 : 139, .k = 176, .a = {types.a}, .b = {types.b}, .d = {types.d}};
      p.a.layout = Layout::row_major;
      p.b.layout = size_of(types.a) == 2 && turn % 3 == 0 ? Layout::row_major : Layout::column_major;
      p.alpha = p.d.type == s32 ? 3 : its.alpha;
      p.beta = p.d.type == s32 ? std::round(its.beta * 10) : its.beta;
      p.epilogue.bias = its.bias;
      p.epilogue.activation = activations[turn % activations.size()];
      p.epilogue.slope = 0.3;
      if (takes_scales(p) && turn % 2 == 0) gemm.scales = {1.7f, 0.9f, is_fp8(p.d.type) ? 0.37f : 0.0f};
      if (takes_scales(p) && turn % 5 < 3) {  // a vector on both sides, or beside a single value
        if (turn % 5 != 1) p.a.scaling = Scaling::vector;
        if (turn % 5 != 2) p.b.scaling = Scaling::vector;
      }
      if (is_fp8(p.a.type) && turn % 3 == 0) p.accumulation = Accumulation::promoted;
      if (!why_types_unsupported(p).empty()) continue;
      place_all(gemm, {16, 16, 16, 16}, false, 0);
      if (!why_illegal(gemm.config, normalise(gemm.problem), device).empty()) continue;
      chosen.push_back(gemm);
      --left;
    }
  return chosen;
}

bool is_exact(const Problem& p) { return expected_of(p.epilogue.activation).exact; }

float rounded_fma(float x, float y, float z) { return std::fma(x, y, z); }
double rounded_fma(double x, double y, double z) { return std::fma(x, y, z); }
int rounded_fma(int x, int y, int z) { return int(unsigned(x) * unsigned(y) + unsigned(z)); }
/// Which this file's compiler cannot contract with a sum.
template <typename T>
T rounded_product(T x, T y) {
  volatile T product = x * y;
  return product;
}
int rounded_product(int x, int y) { return rounded_fma(x, y, 0); }

/// Rounded once to T.
template <typename T>
T activated(T x, const Problem& p) {
  return T(expected_of(p.epilogue.activation).value(double(x), double(T(p.epilogue.slope))));
}

/// Of A or B: what the vector has there, else the single value, which null leaves out.
double scale_at(const GemmCase& gemm, std::size_t operand, const std::vector<float>& vector, std::int64_t i) {
  if (!vector.empty()) return double(vector[std::size_t(i)]);
  return gemm.scales[operand] == 0 ? 1.0 : double(gemm.scales[operand]);
}

struct Expected {
  double x = 0;        // before the activation, times scale_d
  double d = 0;        // before D's rounding
  char bytes[8] = {};  // of D
};

/// The documented formula, in the accumulator's type T; of an activation that is not exact, what it approximates.
template <typename T>
Expected formula(const GemmCase& gemm, const GemmInputs& inputs, std::int64_t row, std::int64_t column) {
  const NormalProblem& p = normalise(gemm.problem);
  double sum = 0;  // exact
  for (std::int64_t k = 0; k < p.k; ++k) {
    const std::int64_t a = p.a.layout == Layout::row_major ? row * p.a.ld + k : k * p.a.ld + row;
    const std::int64_t b = p.b.layout == Layout::row_major ? k * p.b.ld + column : column * p.b.ld + k;
    sum += load(inputs.a.data() + gemm.offset_a, a, p.a.type) * load(inputs.b.data() + gemm.offset_b, b, p.b.type);
  }
  const DataType type_of_addends = type_of_c(p);
  const double scale_a = scale_at(gemm, 0, inputs.scales_a, row), scale_b = scale_at(gemm, 1, inputs.scales_b, column);
  const T beta = T(p.beta);
  const T c = reads_c(p) ? T(load(inputs.c.data() + gemm.offset_c, row * p.c.ld + column, type_of_addends)) : T(0);
  const T bias = p.epilogue.bias == Bias::none
                     ? T(0)
                     : T(load(inputs.bias.data(), p.epilogue.bias == Bias::along_m ? row : column, type_of_addends));
  const T addend = !reads_c(p)                     ? bias
                   : p.epilogue.bias == Bias::none ? rounded_product(beta, c)
                                                   : rounded_fma(beta, c, bias);
  T factor = T(scale_a * scale_b * p.alpha), scaled_sum = T(sum);
  if (has_vector_scales(p)) {
    scaled_sum = rounded_product(scaled_sum, rounded_product(T(p.alpha), T(scale_a)));
    factor = T(scale_b);
  }
  const T x = reads_c(p) || p.epilogue.bias != Bias::none ? rounded_fma(factor, scaled_sum, addend)
                                                          : rounded_product(factor, scaled_sum);

  const T scale_d = is_fp8(p.d.type) && gemm.scales[2] != 0 ? T(gemm.scales[2]) : T(1);
  const T d = rounded_product(activated(x, p), scale_d);
  Expected expected{double(x) * double(scale_d), double(d)};
  store(double(d), expected.bytes, 0, p.d.type);
  return expected;
}
Expected expected_at(const GemmCase& gemm, const GemmInputs& inputs, std::int64_t row, std::int64_t column) {
  switch (compute_type_of(gemm.problem)) {
    case f64:
      return formula<double>(gemm, inputs, row, column);
    case s32:
      return formula<int>(gemm, inputs, row, column);
    default:
      return formula<float>(gemm, inputs, row, column);
  }
}

/// What one kind of kernel came to.
struct Agreement {
  int cases = 0, equal = 0;  // all bits of a case
  std::int64_t elements = 0, other_bits = 0;
  double furthest = 0;  // of |d - formula| beyond D's rounding, in units of what is documented
  std::string first;    // that is not as it should be

  void add(const GemmCase& gemm, const GemmInputs& inputs, const std::vector<char>& d, const std::vector<char>* other) {
    const NormalProblem& p = normalise(gemm.problem);
    const std::size_t size = size_of(p.d.type), begin = d_guard_bytes + std::size_t(gemm.offset_d);
    const double documented = compute_type_of(p) == f64 ? 0x1p-50 : 0x1p-21;
    std::int64_t differ = 0;
    for (std::int64_t row = 0; row < p.m; ++row)
      for (std::int64_t column = 0; column < p.n; ++column) {
        const std::size_t at = begin + std::size_t(row * p.d.ld + column) * size;
        const Expected expected = expected_at(gemm, inputs, row, column);
        const double value = load(&d[at], 0, p.d.type);
        const bool same = std::memcmp(&d[at], other ? &(*other)[at] : expected.bytes, size) == 0;
        differ += !same;
        double wrong = 0;
        if (is_exact(p)) {
          wrong = std::memcmp(&d[at], expected.bytes, size) == 0 && same ? 0 : 2;
        } else {
          const double rounded = load(expected.bytes, 0, p.d.type);
          const double rounding =
              unit_roundoff(p.d.type) * 2 * std::max(std::abs(rounded), std::abs(value)) + smallest(p.d.type);
          wrong = std::max(0.0, std::abs(value - rounded) - rounding) / (documented * std::abs(expected.x) + 0x1p-140);
        }
        furthest = std::max(furthest, wrong);
        if (wrong <= 1 || !first.empty()) continue;
        char text[160];
        std::snprintf(text, sizeof text, ": D(%d, %d) is %.17g, by the formula %.17g", int(row), int(column), value,
                      load(expected.bytes, 0, p.d.type));
        first = to_string(gemm) + text;
      }
    ++cases;
    equal += differ == 0;
    elements += p.m * p.n;
    other_bits += differ;
  }

 private:
  /// What D's smallest subnormals are apart.
  static double smallest(DataType d) {
    switch (d) {
      case f16:
        return 0x1p-24;
      case e4m3:
        return 0x1p-9;
      case e5m2:
        return 0x1p-16;
      default:
        return 0;
    }
  }
};

using Table = std::map<std::string, Agreement>;  // by types and whether the activation is exact

void print(const std::string& what, const Table& table) {
  std::printf(
      "\n%s\n| types | activation | cases | equal | elements | other bits | furthest / documented |\n"
      "|---|---|---|---|---|---|---|\n",
      what.c_str());
  for (const auto& [kind, its] : table)
    std::printf("| %s | %d | %d | %lld | %lld | %.2g |\n", kind.c_str(), its.cases, its.equal,
                static_cast<long long>(its.elements), static_cast<long long>(its.other_bits), its.furthest);
  std::printf(
      "Exact: what rounds once at most. Approximate: by 2^-21 |x| at most (f64: 2^-50 |x|), and D's rounding.\n");
  std::fflush(stdout);
}

/// Compares with the formula and, if there is one, with the other device.
Table agree(GemmDevice& device, GemmDevice* other, const std::vector<GemmCase>& all) {
  Table table;
  device.compile(all);
  if (other) other->compile(all);
  for (const GemmCase& gemm : all) {
    const NormalProblem& p = normalise(gemm.problem);
    INFO(to_string(gemm) << ", JITGEMM_TEST_SEED=" << test_seed());
    GemmInputs inputs = make_inputs(gemm, Fill::integers, test_seed());
    for (auto* const scales : {&inputs.scales_a, &inputs.scales_b})  // no powers of two
      for (float& scale : *scales) scale *= 1.3f + 0.1f * float(&scale - scales->data());
    const std::vector<char> d = device.run(gemm, inputs);
    std::optional<std::vector<char>> others;
    if (other) others = other->run(gemm, inputs);
    const std::string loop(to_string(gemm.config.main_loop));
    Agreement& its = table[loop + " " + std::string(to_string(p.a.type)) + " " + std::string(to_string(p.b.type)) +
                           " -> " + std::string(to_string(p.d.type)) + " | " + (is_exact(p) ? "exact" : "approximate")];
    its.add(gemm, inputs, d, others ? &*others : nullptr);
  }
  for (const auto& [kind, its] : table) {
    CAPTURE(kind, its.first);
    CHECK(its.furthest <= 1);
  }
  return table;
}

/// A factor each way: what comes of them is finite, or must not be.
struct Factors {
  float alpha, scale_a, scale_b;
};
constexpr float infinity = HUGE_VALF;
const std::vector<Factors> factors{
    {1e-30f, 1e20f, 1e20f},
    {1e30f, 1e-20f, 1e-20f},
    {0x1p-140f, 0x1p100f, 0x1.8p41f},
    {0x1.8p-149f, 0x1p127f, 0x1p20f},
    {0x1p-149f, 0x1p-149f, 1},
    {3e38f, 3e38f, 1e-38f},
    {3e38f, 3e38f, 1e-37f},
    {0.1f, 0.2f, 0.3f},
    {0x1.000002p-126f, 0x1.fffffep-1f, 0x1.fffffep0f},
    {-1e-30f, 1e20f, 1e20f},
    {infinity, 1e-30f, 2},
    {infinity, -1, 3},
    {NAN, 1, 2},
    {3e38f, 10, 1},
};

void scales_multiply_in_any_order(GemmDevice& device, MainLoop main_loop) {
  for (Factors its : factors) {
    const std::array given{its.alpha, its.scale_a, its.scale_b};
    std::array<std::size_t, 3> places{0, 1, 2};
    do {
      const std::array order{given[places[0]], given[places[1]], given[places[2]]};
      GemmCase gemm;
      gemm.problem = {.m = 17, .n = 24, .k = 64, .a = {e4m3}, .b = {e5m2}, .d = {f32}};
      gemm.problem.b.layout = Layout::column_major;
      gemm.problem.alpha = order[0];
      gemm.config =
          parse_kernel_config(main_loop == MainLoop::sm90 ? "sm90 64x32x128 stages=3 warps=4 schedule=data_parallel"
                                                          : "sm80 32x32x64 stages=3 warps=4 schedule=data_parallel");
      gemm.scales = {order[1], order[2], 0};
      place_all(gemm, {16, 16, 16, 16}, false, 0);
      const GemmInputs inputs = make_inputs(gemm, Fill::integers, 5);
      const std::vector<char> d = device.run(gemm, inputs);
      int wrong = 0;
      for (std::int64_t row = 0; row < gemm.problem.m; ++row)
        for (std::int64_t column = 0; column < gemm.problem.n; ++column) {
          const double value = load(d.data() + d_guard_bytes + gemm.offset_d, row * gemm.problem.d.ld + column, f32);
          const double expected = load(expected_at(gemm, inputs, row, column).bytes, 0, f32);
          wrong += value != expected && !(std::isnan(value) && std::isnan(expected));
        }
      CAPTURE(order[0], order[1], order[2]);
      CHECK(wrong == 0);
    } while (std::next_permutation(places.begin(), places.end()));
  }
}

}  // namespace

TEST_CASE("On the emulator, D has the bits of the documented formula where the sums are exact",
          "[numerics][emulated]") {
  GemmDevice emulator(GemmDevice::emulator(test_seed()));
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) {
    const Table table = agree(emulator, nullptr, cases(main_loop, 1));
    CHECK(table.size() >= 12);
  }
}

TEST_CASE("On the emulator, alpha and the scales multiply in any order without overflow", "[numerics][emulated]") {
  GemmDevice emulator(GemmDevice::emulator(test_seed()));
  for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) scales_multiply_in_any_order(emulator, main_loop);
}

TEST_CASE("Where nothing is multiplied, scales of NaN are not read", "[numerics][emulated]") {
  Context context({.device = Device::emulator, .tuning = Tuning::off});
  const std::vector<std::uint8_t> a(16 * 32, 0x38), b(32 * 16, 0x38);  // ones
  const std::vector<float> c(16 * 16, 3);
  const float scale = std::numeric_limits<float>::quiet_NaN();
  const Problem ones{.m = 16,
                     .n = 16,
                     .k = 32,
                     .a = {e4m3},
                     .b = {.type = e4m3, .layout = Layout::column_major},
                     .d = {f32},
                     .beta = 2};
  const auto first = [&](double alpha, std::int64_t k) {
    Problem problem = ones;
    problem.alpha = alpha;
    problem.k = k;
    std::vector<float> d(16 * 16, -1);
    context.gemm(problem, {.a = a.data(), .b = b.data(), .c = c.data(), .d = d.data(), .scale_a = &scale});
    return d[0];
  };
  CHECK(std::isnan(first(1, 32)));
  CHECK(first(0, 32) == 6);
  CHECK(first(1, 0) == 6);
}

TEST_CASE("GPU and emulator have the bits of the documented formula where the sums are exact", "[gpu][numerics]") {
  try {
    GemmDevice gpu(GemmDevice::cuda()), emulator(GemmDevice::emulator());
    const bool hopper = gpu.context().device().architecture == "sm_90a";
    for (const MainLoop main_loop : {MainLoop::sm80, MainLoop::sm90}) {
      if (main_loop == MainLoop::sm90 && !hopper) continue;
      const std::vector<GemmCase> all = cases(main_loop, 5);
      print("GPU against emulator, " + std::string(to_string(main_loop)), agree(gpu, &emulator, all));
      scales_multiply_in_any_order(gpu, main_loop);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_device) throw;
    SKIP(std::string("no CUDA device: ") + error.what());
  }
}
