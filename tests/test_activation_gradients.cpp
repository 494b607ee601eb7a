// The gradients that epilogues of the caller's own may call (templates/activation_gradients.cuh), against long double.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "custom_epilogue_cases.hpp"
#include "jitgemm/jitgemm.hpp"
#include "reference.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::own_epilogues;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::array functions = {"dgelu_erf", "dgelu_tanh", "dsilu"};

/// The gradient of x s(y), s = 1 / (1 + exp(-y)), where y has the one given.
long double of_gate(long double x, long double y, long double gradient) {
  return (1 + x * gradient / (1 + std::exp(y))) / (1 + std::exp(-y));
}

double expected(std::size_t function, double at) {
  const long double x = std::clamp(at, -200.0, 200.0);  // where all have reached their limits
  if (function == 0)
    return double(std::erfc(-x / std::sqrt(2.0L)) / 2 + x * std::exp(-x * x / 2) * 0.398942280401432677939946L);
  if (function == 2) return double(of_gate(x, x, 1));
  constexpr long double scale = 1.59576912160573071175978L, cubic = 0.044715L;
  return double(of_gate(x, scale * (x + cubic * x * x * x), scale * (1 + 3 * cubic * x * x)));
}

/// Steps of 2^-10 as far as anything happens, every size of number, and what is none.
std::vector<double> arguments_of(DataType type) {
  const int smallest = type == f64 ? -1074 : -149, largest = type == f64 ? 1023 : 127;
  std::vector<double> x = {infinity, -infinity, std::nan(""), 0.0, -0.0};
  for (int i = -20 * 1024; i <= 20 * 1024; ++i) x.push_back(i / 1024.0);
  for (int i = smallest; i <= largest; i += 3)
    for (const double sign : {1.0, -1.0}) x.push_back(std::ldexp(sign * (i < smallest + 60 ? 1 : 1.37), i));
  while (x.size() % 64) x.push_back(1);
  for (double& value : x) value = rounded(value, type);
  return x;
}

/// What a text gives for each of the three.
std::array<std::vector<double>, 3> gradients(TestDevice& device, DataType type, const std::vector<double>& x) {
  const std::string name(to_string(type)), compute = type == f64 ? "double" : "float";
  const std::int64_t m = std::int64_t(x.size()) / 64, n = 64;
  Problem problem{.m = m, .n = n, .k = 1, .a = {type}, .b = {type}, .d = {type}};
  problem.epilogue.function = define_epilogue(
      parse_epilogue("// operand in before matrix " + name + "\n// operand out tanh matrix " + name +
                     "\n// operand out silu matrix " + name + "\n__device__ " + compute + " epilogue(" + compute +
                     " x, const Args& args, Out& out) {\n  out.tanh = x * dgelu_tanh(args.before);\n"
                     "  out.silu = x * dsilu(args.before);\n  return x * dgelu_erf(args.before);\n}\n"));
  const auto filled = [type](const std::vector<double>& values) {
    std::vector<unsigned char> bytes(values.size() * size_of(type));
    for (std::size_t i = 0; i < values.size(); ++i) store(values[i], bytes.data(), std::int64_t(i), type);
    return bytes;
  };
  std::vector<unsigned char> a = filled(std::vector<double>(std::size_t(m), 1)), b = filled(std::vector<double>(64, 1));
  std::vector<unsigned char> before = filled(x);
  std::array<std::vector<unsigned char>, 3> results = {before, before, before};
  const EpilogueValue operands[] = {
      {.in = device.put(before)}, {.out = device.put(results[1])}, {.out = device.put(results[2])}};
  device.context.gemm(
      problem,
      {.a = device.put(a), .b = device.put(b), .d = device.put(results[0]), .epilogue = operands, .epilogue_count = 3});
  device.put_back();
  std::array<std::vector<double>, 3> values;
  for (std::size_t f = 0; f < 3; ++f)
    for (std::size_t i = 0; i < x.size(); ++i) values[f].push_back(load(results[f].data(), std::int64_t(i), type));
  return values;
}

/// Each within its bound of what is expected, and in f32 within 2^-15 of itself where it is small.
void are_near(TestDevice& device, DataType type, const std::array<double, 3>& bounds) {
  const std::vector<double> x = arguments_of(type);
  const std::array<std::vector<double>, 3> got = gradients(device, type, x);
  for (std::size_t f = 0; f < 3; ++f) {
    double worst = 0, worst_of_itself = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        CHECK(std::isnan(got[f][i]));
        continue;
      }
      const double value = expected(f, x[i]), error = std::abs(got[f][i] - value);
      if (!(error <= bounds[f])) FAIL(functions[f] << "(" << x[i] << ") is " << got[f][i] << ", expected " << value);
      worst = std::max(worst, error);
      if (x[i] >= -5.6 && x[i] <= -2) worst_of_itself = std::max(worst_of_itself, error / std::abs(value));
    }
    CAPTURE(functions[f], std::log2(worst), std::log2(worst_of_itself));
    CHECK(worst >= bounds[f] / 16);  // else templates/README.md says too little
    if (type == f32) CHECK(worst_of_itself <= 0x1p-15);
    CHECK(got[f][0] == 1);
    CHECK(std::abs(got[f][1]) <= 0x1p-110);
  }
}

}  // namespace

TEST_CASE("Gradients of activations are as near as templates/README.md says, and end at 0 and 1",
          "[activations][custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  TestDevice device(on_emulator(cache.path()));
  are_near(device, f32, {std::exp2(-21.6), std::exp2(-22.9), std::exp2(-23.1)});
  are_near(device, f64, {0x1p-49, 0x1p-49, 0x1p-49});
}

TEST_CASE("On a GPU, gradients of activations are within 2^-20", "[activations][custom_epilogue][gpu]") {
  if (cuda_devices().empty()) SKIP("no CUDA device");
  const TemporaryDirectory cache;
  ContextOptions options = on_emulator(cache.path());
  options.device = Device::cuda;
  TestDevice device(options);
  are_near(device, f32, {0x1p-20, 0x1p-20, 0x1p-20});
  are_near(device, f64, {0x1p-49, 0x1p-49, 0x1p-49});
}
