// A D of e4m3 that gets scales of its own, one a row and 128 columns, on the emulator and on a GPU, against float64;
// and the product that reads it as its A.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "reference.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const float nan_f32 = std::numeric_limits<float>::quiet_NaN();

ContextOptions on_emulator(const TemporaryDirectory& cache, std::uint64_t seed = 0) {
  ContextOptions options;
  options.device = Device::emulator;
  options.tuning = Tuning::off;
  options.cache_dir = cache.path().string();
  options.emulator_seed = seed;
  return options;
}

/// Values of one type in host memory.
struct Values {
  DataType type;
  std::vector<unsigned char> bytes;

  Values(DataType its_type, std::int64_t count) : type(its_type), bytes(std::size_t(count) * size_of(its_type), 0xff) {}
  double operator[](std::int64_t i) const { return load(bytes.data(), i, type); }
  void set(std::int64_t i, double x) { store(x, bytes.data(), i, type); }
  void fill(Random& random, int most) {
    for (std::int64_t i = 0; i < std::int64_t(bytes.size() / size_of(type)); ++i) set(i, random.between(-most, most));
  }
};

/// A call with all that it reads and writes. B is column-major, so that both factors are K-major.
struct Call {
  Problem problem;
  Values a, b, bias, d;
  std::vector<float> scale_a, scale_b, scales_d;

  Call(const Problem& its_problem, Random& random)
      : problem(its_problem),
        a(e4m3, problem.m * problem.k),
        b(e4m3, problem.n * problem.k),
        bias(bf16, problem.n),
        d(e4m3, problem.m * ldd()),
        scales_d(std::size_t(scale_ld(Scaling::block_1x128, problem.m, problem.n) * ((problem.n + 127) / 128)),
                 nan_f32) {
    a.fill(random, 3);
    b.fill(random, 3);
    bias.fill(random, 5);
    const auto scales = [&](std::vector<float>& to, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) to.push_back(std::exp2(float(random.between(-3, 3))));
    };
    if (problem.a.scaling != Scaling::value) scales(scale_a, scales_of_a(problem));
    if (problem.b.scaling != Scaling::value) scales(scale_b, scales_of_b(problem));
  }

  std::int64_t ldd() const { return problem.d.ld == 0 ? problem.n : problem.d.ld; }
  std::int64_t ld_scales() const { return scale_ld(Scaling::block_1x128, problem.m, problem.n); }
  float scale_of(std::int64_t row, std::int64_t column) const {
    return scales_d[std::size_t(column / 128 * ld_scales() + row)];
  }
  double value(std::int64_t row, std::int64_t column) const { return d[row * ldd() + column] * scale_of(row, column); }

  Operands operands() {
    return {.a = a.bytes.data(),
            .b = b.bytes.data(),
            .d = d.bytes.data(),
            .bias = bias.bytes.data(),
            .scale_a = scale_a.empty() ? nullptr : scale_a.data(),
            .scale_b = scale_b.empty() ? nullptr : scale_b.data(),
            .scales_d = scales_d.data()};
  }

  struct Expected {
    double value, size;  // and the sum of the products' sizes
  };
  Expected expected(std::int64_t row, std::int64_t column) const {
    const auto factor = [&](const std::vector<float>& scales, Scaling scaling, std::int64_t rows, std::int64_t i,
                            std::int64_t k) {
      if (scales.empty()) return 1.0;
      const std::int64_t ld = scale_ld(scaling, rows, problem.k);
      if (scaling == Scaling::vector) return double(scales[std::size_t(i)]);
      return double(scales[std::size_t(scaling == Scaling::block_1x128 ? k / 128 * ld + i : i / 128 * ld + k / 128)]);
    };
    Expected sum{0, 0};
    for (std::int64_t i = 0; i < problem.k; ++i) {
      const double product = a[row * problem.k + i] * b[column * problem.k + i] *
                             factor(scale_a, problem.a.scaling, problem.m, row, i) *
                             factor(scale_b, problem.b.scaling, problem.n, column, i);
      sum.value += product;
      sum.size += std::abs(product);
    }
    double x = problem.alpha * sum.value;
    if (problem.epilogue.bias == Bias::along_n) x += bias[column];
    if (problem.epilogue.activation == Activation::relu) x = x < 0 ? 0 : x;
    if (problem.epilogue.activation == Activation::silu) x = x / (1 + std::exp(-x));
    return {x, std::abs(problem.alpha) * sum.size};
  }
};

/// What is wrong; empty if nothing is.
std::string fault_of(const Call& call) {
  const Problem& p = call.problem;
  const auto at = [](std::int64_t row, std::int64_t column) {
    return "(" + std::to_string(row) + ", " + std::to_string(column) + ")";
  };
  for (std::int64_t row = 0; row < p.m; ++row)
    for (std::int64_t first = 0; first < p.n; first += 128) {
      double largest = 0, size = 0;
      std::vector<Call::Expected> expected;
      for (std::int64_t column = first; column < std::min(p.n, first + 128); ++column) {
        expected.push_back(call.expected(row, column));
        largest = std::max(largest, std::abs(expected.back().value));
        size = std::max(size, expected.back().size);
      }
      const double rounding = 0x1p-20 * size, scale = call.scale_of(row, first),
                   right = std::max(largest / 448, 0x1p-126);
      if (!(std::abs(scale - right) <= rounding + 0x1p-20 * right))
        return "the scale of " + at(row, first) + " is " + std::to_string(scale) + ", not " + std::to_string(right);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        // e4m3 has 3 bits, and below 2^-6 steps of 2^-9.
        const double allowed = 0x1p-4 * std::abs(expected[i].value) + 0x1p-10 * scale + 2 * rounding,
                     got = call.value(row, first + std::int64_t(i));
        if (!(std::abs(got - expected[i].value) <= allowed))
          return at(row, first + std::int64_t(i)) + " is " + std::to_string(got) + ", not " +
                 std::to_string(expected[i].value);
      }
    }
  // Nothing between the scales' rows, nor between D's, is written.
  for (std::int64_t block = 0; block < (p.n + 127) / 128; ++block)
    for (std::int64_t row = p.m; row < call.ld_scales(); ++row)
      if (!std::isnan(call.scale_of(row, block * 128))) return "a scale behind the last row is written";
  for (std::int64_t row = 0; row < p.m; ++row)
    for (std::int64_t column = p.n; column < call.ldd(); ++column)
      if (!std::isnan(call.d[row * call.ldd() + column])) return "D is written behind a row";
  return {};
}

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.m = m,
          .n = n,
          .k = k,
          .a = {e4m3},
          .b = {.type = e4m3, .layout = Layout::column_major},
          .d = {.type = e4m3, .scaling = Scaling::block_1x128}};
}

KernelConfig config_of(const std::string& text) { return parse_kernel_config("sm90 " + text); }

}  // namespace

TEST_CASE("D gets scales of its own in every kernel of whole blocks of columns", "[own_scales][emulator]") {
  const TemporaryDirectory cache;
  Context in_order(on_emulator(cache)), adversarial(on_emulator(cache, test_seed()));
  Random random(test_seed());
  const std::vector<std::string> configs = {
      "64x128x128 group_m=8 stages=4 warps=4 schedule=data_parallel",
      "128x128x128 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "128x128x128 group_m=8 stages=4 warps=8 schedule=persistent grid=3",
      "64x256x128 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "64x128x128 group_m=8 stages=4 warps=8 consumers=ping_pong schedule=persistent grid=2",
      "128x256x128 group_m=8 stages=3 warps=8 cluster=2x1x1 schedule=data_parallel",
      "128x128x128 group_m=8 stages=4 warps=8 cluster=1x2x1 schedule=split_k splits=2",
      "64x128x128 group_m=8 stages=4 warps=4 schedule=stream_k grid=3",
      "64x256x128 group_m=8 stages=4 warps=4 cluster=1x1x2 schedule=data_parallel",
  };
  int done = 0;
  for (const std::string& text : configs)
    for (const auto& [m, n, k] :
         {std::array<std::int64_t, 3>{1, 16, 64}, {37, 272, 400}, {200, 400, 272}, {65, 128, 528}}) {
      const KernelConfig config = config_of(text);
      if (config.cluster_k > 1 && k <= 128) continue;  // a k-block each
      Problem problem = problem_of(m, n, k);
      if (done % 2 == 1) problem.d.ld = n + 32;
      if (done % 3 == 1) problem.epilogue = {.bias = Bias::along_n, .activation = Activation::relu};
      if (done % 3 == 2) problem.epilogue.activation = Activation::silu;
      if (done % 4 == 3) problem.a.scaling = problem.b.scaling = Scaling::vector;
      problem.alpha = done % 2 == 0 ? 1 : -0.75;
      const bool small = config.block_m / (config.ping_pong ? 1 : config.warps / 4) * config.block_n <= 64 * 128;
      if (done % 4 == 1 && small) {
        problem.a.scaling = Scaling::block_1x128;
        problem.b.scaling = Scaling::block_128x128;
      }
      Call call(problem, random);
      INFO(text << ": " << to_string(problem));
      Context& context = done % 3 == 0 ? adversarial : in_order;
      context.gemm(problem, call.operands(), nullptr, config);
      CHECK(fault_of(call) == "");
      ++done;
    }
  CHECK(done > 30);
}

TEST_CASE("Without a configuration a kernel is found that gives D scales of its own", "[own_scales][emulator]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache));
  Random random(test_seed());
  // Rows that TMA does not read where they are, too: k = 200 and 77.
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{1, 48, 128}, {16, 512, 200}, {70, 160, 77}, {300, 256, 256}}) {
    Call call(problem_of(m, n, k), random);
    INFO(to_string(call.problem) << " by " << to_string(context.plan(call.problem).config));
    context.gemm(call.problem, call.operands());
    CHECK(fault_of(call) == "");
  }
}

TEST_CASE("A product reads what another one left in e4m3 with its scales", "[own_scales][emulator]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache));
  Random random(test_seed());
  for (const std::int64_t m : {5, 130}) {
    Problem first = problem_of(m, 272, 256);
    first.a.scaling = Scaling::block_1x128;
    first.b.scaling = Scaling::block_128x128;
    first.epilogue.activation = Activation::silu;
    Call up(first, random);
    context.gemm(first, up.operands());
    REQUIRE(fault_of(up) == "");

    Problem second{.m = m,
                   .n = 140,
                   .k = 272,
                   .a = {.type = e4m3, .scaling = Scaling::block_1x128},
                   .b = {.type = e4m3, .layout = Layout::column_major, .scaling = Scaling::block_128x128},
                   .d = {f32}};
    Values weight(e4m3, 140 * 272);
    weight.fill(random, 3);
    std::vector<float> of_weight(std::size_t(scales_of_b(second)));
    for (float& scale : of_weight) scale = std::exp2(float(random.between(-3, 3)));
    std::vector<float> d(std::size_t(m * 140), nan_f32);
    context.gemm(second, {.a = up.d.bytes.data(),
                          .b = weight.bytes.data(),
                          .d = d.data(),
                          .scale_a = up.scales_d.data(),
                          .scale_b = of_weight.data()});
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t column = 0; column < 140; ++column) {
        double sum = 0, size = 0;
        for (std::int64_t k = 0; k < 272; ++k) {
          const double product =
              up.value(row, k) * weight[column * 272 + k] * double(of_weight[std::size_t(column / 128 * 3 + k / 128)]);
          sum += product;
          size += std::abs(product);
        }
        INFO(row << ", " << column);
        REQUIRE(std::abs(double(d[std::size_t(row * 140 + column)]) - sum) <= 0x1p-9 * size);
      }
  }
}

TEST_CASE("Scales of zeros, infinities and NaN are what problem.hpp says", "[own_scales][emulator]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache));
  Random random(test_seed());
  Problem problem = problem_of(4, 256, 128);
  problem.epilogue.bias = Bias::along_n;
  Call call(problem, random);
  // Row 0 is zero but for the bias, which has an infinity and a NaN in the second block.
  for (std::int64_t i = 0; i < 128; ++i) call.a.set(i, 0);
  for (std::int64_t i = 0; i < 256; ++i) call.bias.set(i, 0);
  call.bias.set(130, infinity);
  call.bias.set(131, std::nan(""));
  context.gemm(problem, call.operands());
  CHECK(call.scale_of(0, 0) == 0x1p-126f);
  for (std::int64_t column = 0; column < 128; ++column) CHECK(call.d[column] == 0);
  for (std::int64_t row = 0; row < 4; ++row) {
    CHECK(call.scale_of(row, 128) == std::numeric_limits<float>::max() / 448);
    for (std::int64_t column = 128; column < 256; ++column) {
      const double d = call.d[row * 256 + column];
      if (column == 131)
        CHECK(std::isnan(d));
      else
        CHECK(d == (column == 130 ? 448 : 0));
    }
  }
  // A NaN alone leaves its block's scale to the others.
  call.bias.set(130, 0);
  context.gemm(problem, call.operands());
  CHECK(call.scale_of(0, 128) == 0x1p-126f);
  double largest = 0;
  for (std::int64_t column = 128; column < 256; ++column) {
    CHECK(std::isnan(call.d[256 + column]) == (column == 131));
    if (column != 131) largest = std::max(largest, std::abs(call.expected(1, column).value));
  }
  CHECK(std::abs(call.scale_of(1, 128) - largest / 448) <= 0x1p-20 * largest);
}

TEST_CASE("Where D is empty, it is planned as it is computed, whatever scales it has", "[own_scales][plan][emulator]") {
  const TemporaryDirectory cache;
  ContextOptions older = on_emulator(cache);
  older.architecture = "sm_89";
  for (const ContextOptions& options : {on_emulator(cache), older}) {
    Context context(options);
    for (Problem problem : {problem_of(0, 128, 128), problem_of(64, 0, 128), problem_of(0, 128, 0)}) {
      INFO(to_string(problem));
      CHECK_NOTHROW(context.gemm(problem, {}));
      CHECK(context.plan(problem).problem.d.scaling == Scaling::value);
      CHECK(context.workspace_size(problem) == 0);
      CHECK_NOTHROW(context.compile(problem));
      problem.d.type = bf16;
      CHECK_THROWS_WITH(context.gemm(problem, {}), ContainsSubstring("no kernel gives d = bf16 scales of its own"));
      CHECK_THROWS_WITH(context.plan(problem), ContainsSubstring("no kernel gives d = bf16 scales of its own"));
    }
  }
}

TEST_CASE("What cannot give D scales of its own is one error", "[own_scales]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache));
  Random random(test_seed());
  const auto fails = [&](const Problem& problem, const std::string& why, auto change, const std::string& config = "") {
    Call call(problem_of(64, 128, 128), random);
    Operands operands = call.operands();
    change(operands, call);
    INFO(why);
    CHECK_THROWS_WITH(config.empty() ? context.gemm(problem, operands)
                                     : context.gemm(problem, operands, nullptr, parse_kernel_config(config)),
                      ContainsSubstring(why));
  };
  const auto as_it_is = [](Operands&, Call&) {};
  const Problem good = problem_of(64, 128, 128);
  const auto with = [&](auto change) {
    Problem problem = good;
    change(problem);
    return problem;
  };
  fails(with([](Problem& p) { p.d.type = bf16; }), "no kernel gives d = bf16 scales of its own: use d = e4m3",
        as_it_is);
  fails(with([](Problem& p) { p.d.type = e5m2; }), "no kernel gives d = e5m2 scales of its own", as_it_is);
  fails(with([](Problem& p) { p.d.scaling = Scaling::vector; }), "D gets scales of 1x128 of its own, or one value",
        as_it_is);
  fails(with([](Problem& p) { p.d.ld = 136; }), "use an n and an ldd that are multiples of 16", as_it_is);
  fails(with([](Problem& p) { p.n = 120; }), "use an n and an ldd that are multiples of 16", as_it_is);
  fails(with([](Problem& p) { p.batch = 2; }), "call for one after the other", as_it_is);
  fails(with([](Problem& p) {
          p.epilogue.function =
              define_epilogue(parse_epilogue("__device__ float epilogue(float x, const Args&, Out&) { return x; }"));
        }),
        "behind an epilogue of one's own", as_it_is);
  fails(good, "scales_d", [](Operands& operands, Call&) { operands.scales_d = nullptr; });
  fails(good, "scales_d is not a multiple of 16 bytes", [](Operands& operands, Call&) { ++operands.scales_d; });
  // All kernels pack such an A first.
  alignas(256) static std::array<char, 256> few;
  fails(with([](Problem& p) { p.a.layout = Layout::column_major; }),
        "the workspace has 256 bytes, with which no kernel does here; pass ", [](Operands& operands, Call&) {
          operands.workspace = few.data();
          operands.workspace_bytes = few.size();
        });
  fails(good, "scale_d is given for a D that gets scales of its own",
        [](Operands& operands, Call& call) { operands.scale_d = call.scales_d.data(); });
  fails(good, "overlap",
        [](Operands& operands, Call& call) { operands.scales_d = reinterpret_cast<float*>(call.d.bytes.data()); });
  fails(with([](Problem& p) { p.d.scaling = Scaling::value; }), "scales_d is given for a D without scales of its own",
        as_it_is);
  fails(good, "D is not a multiple of 16 bytes: align the pointer",
        [](Operands& operands, Call&) { operands.d = static_cast<char*>(operands.d) + 8; });
  // Nothing is multiplied, which is left to the sm80 main loop else.
  fails(with([](Problem& p) { p.k = 0; }), "k and alpha are not zero", as_it_is);
  fails(with([](Problem& p) { p.alpha = 0; }), "k and alpha are not zero", as_it_is);
  fails(with([](Problem& p) { p.alpha = 1e-60; }), "k and alpha are not zero", as_it_is);
  fails(good, "swap_ab is false", as_it_is,
        "sm90 64x128x128 group_m=8 stages=4 warps=4 swap_ab=true schedule=data_parallel");
  fails(good, "block_n is a multiple of 128", as_it_is,
        "sm90 64x64x128 group_m=8 stages=4 warps=4 schedule=data_parallel");
  fails(good, "the sm80 main loop", as_it_is, "sm80 64x64x64 group_m=8 stages=3 warps=4 schedule=data_parallel");

  ContextOptions older = on_emulator(cache);
  older.architecture = "sm_89";
  Context portable(older);
  Call call(good, random);
  CHECK_THROWS_WITH(portable.gemm(good, call.operands()),
                    ContainsSubstring("no configuration is legal on this device (") && ContainsSubstring("sm_90"));
}
