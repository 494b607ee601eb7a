// No compiler decides where a kernel rounds: NVRTC leaves every product and every sum of the text as it is, and fuses
// none.
#include <ostream>
#include <regex>
#include <string>
#include <vector>

#include "activations.hpp"
#include "backend/cuda/nvrtc.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "kernels/legality.hpp"
#include "nvrtc.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace jitgemm::test {

static std::ostream& operator<<(std::ostream& out, const Operations& x) {
  return out << x.fma << " fma, " << x.mul << " mul, " << x.add << " add";
}

}  // namespace jitgemm::test

namespace {

int count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return int(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()));
}

Operations rounded_operations(const std::string& ptx, const std::string& width) {
  return {count(ptx, "\\bfma\\.rn\\." + width), count(ptx, "\\bmul\\.rn\\." + width),
          count(ptx, "\\b(add|sub)\\.rn\\." + width)};
}

/// What ptxas may fuse as it likes: without a rounding of its own.
int loose_operations(const std::string& ptx) {
  return count(ptx, "\\b(add|sub|mul|mad|fma)\\.(ftz\\.)?(sat\\.)?f(16|32|64)");
}

/// Of one element of D, as templates/README.md has it.
Operations of_element(const Problem& p) {
  const bool c = reads_c(p), bias = p.epilogue.bias != Bias::none;
  Operations x = c && bias ? Operations{2, 0, 0}
                 : c       ? Operations{1, 1, 0}
                 : bias    ? Operations{1, 0, 0}
                           : Operations{0, 1, 0};
  x = x + *expected_of(p.epilogue.activation).operations;
  if (p.d.type == e4m3 || p.d.type == e5m2) x = x + Operations{0, 1, 0};  // scale_d
  return x;
}

struct Variant {
  double beta;
  Bias bias;
  Activation activation;
};
/// All addends, and all activations whose operations are known.
std::vector<Variant> epilogues() {
  std::vector<Variant> all{
      {0, Bias::none, Activation::none}, {0.7, Bias::none, Activation::none}, {0, Bias::along_n, Activation::none}};
  for (const ExpectedActivation& its : expected_activations)
    if (its.operations && its.activation != Activation::none)
      all.push_back(
          {all.size() % 3 == 0 ? 0 : 0.7, all.size() % 2 == 0 ? Bias::along_n : Bias::along_m, its.activation});
  return all;
}

/// A kernel whose text has each element of a thread `copies` times (inside, at edges), and `sums` additions beside
/// them: where split tiles are added up, of as many peers as are asked at a time (fixup.cuh). With C the sm90 loop has
/// a second copy where D is not of 16 bits.
struct Kernel {
  DataType a, d;
  std::string config;
  int elements;  // of D, a thread
  int copies, copies_with_c;
  Operations beside;
  Accumulation accumulation = Accumulation::fast;
};
const std::vector<Kernel> kernels{
    {f16, f32, "sm90 128x64x64 stages=3 warps=8 schedule=data_parallel", 32, 1, 2, {}},
    {f16, bf16, "sm90 128x64x64 stages=3 warps=8 swap_ab=true schedule=data_parallel", 32, 1, 1, {}},
    {bf16, f16, "sm90 64x32x64 stages=3 warps=8 consumers=ping_pong schedule=persistent", 16, 1, 1, {}},
    {f16, f16, "sm90 64x32x64 stages=3 warps=4 cluster=1x1x2 schedule=data_parallel", 8, 1, 1, {0, 0, 8}},
    {f16, f16, "sm90 64x32x64 stages=3 warps=4 schedule=stream_k", 16, 1, 1, {0, 0, 4 * 16}},
    {e4m3, e4m3, "sm90 64x32x128 stages=3 warps=4 schedule=data_parallel", 16, 1, 2, {}},
    {e4m3,
     f32,
     "sm90 64x32x128 stages=3 warps=4 schedule=data_parallel",
     16,
     1,
     2,
     {0, 0, (16 + 8 + 4 + 1) * 16},  // of k-blocks in straight code
     Accumulation::promoted},
    {f16, f16, "sm80 64x32x32 stages=3 warps=4 schedule=data_parallel", 16, 2, 2, {}},
    {e4m3, bf16, "sm80 64x32x64 stages=3 warps=4 schedule=split_k splits=2", 16, 2, 2, {0, 0, 2 * 16}},
    {f32, f32, "sm80 64x32x16 stages=3 warps=4 schedule=data_parallel", 16, 2, 2, {16 * 16, 0, 0}},  // block_k
                                                                                                     // products
    {f64, f64, "sm80 64x32x16 stages=3 warps=4 schedule=stream_k", 16, 2, 2, {0, 0, 16}},
};

}  // namespace

TEST_CASE("A kernel has the roundings that its text names, inside and at edges, and no others", "[numerics][nvrtc]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  const DeviceInfo device = device_info_for("sm_90a");
  for (const Kernel& kernel : kernels)
    for (const Variant& epilogue : epilogues()) {
      if (kernel.a == f64 && !expected_of(epilogue.activation).exact) continue;  // exp2 has operations of its own
      const NormalProblem problem = normalise({.m = 1001,
                                               .n = 1008,
                                               .k = 1024,
                                               .a = {kernel.a},
                                               .b = {.type = kernel.a, .layout = Layout::column_major},
                                               .d = {kernel.d},
                                               .alpha = 0.3,
                                               .beta = epilogue.beta,
                                               .epilogue = {.bias = epilogue.bias, .activation = epilogue.activation},
                                               .accumulation = kernel.accumulation});
      const KernelConfig config = parse_kernel_config(kernel.config);
      CAPTURE(to_string(problem), kernel.config);
      REQUIRE(why_illegal(config, problem, device) == "");
      const std::string ptx = cuda::ptx_of(cuda::nvrtc(), generate(problem, config, device));
      CHECK(loose_operations(ptx) == 0);
      const int copies = kernel.elements * (reads_c(problem) ? kernel.copies_with_c : kernel.copies);
      CHECK(rounded_operations(ptx, kernel.a == f64 ? "f64" : "f32") == of_element(problem) * copies + kernel.beside);
    }
}

TEST_CASE("NVRTC fuses no product and sum of its own accord", "[numerics][nvrtc]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  const std::string text =
      "extern \"C\" __global__ void f(float* x, double* y) {\n"
      "  x[0] = x[1] * x[2] + x[3];\n  y[0] = y[1] * y[2] - y[3];\n}\n";
  const std::string ptx =
      cuda::ptx_of(cuda::nvrtc(), {.text = text, .entry = "f", .architecture = "sm_90a", .config = ""});
  CHECK(loose_operations(ptx) == 0);
  CHECK(rounded_operations(ptx, "f32") == Operations{0, 1, 1});
  CHECK(rounded_operations(ptx, "f64") == Operations{0, 1, 1});
}
