// Epilogues of the caller's own (jitgemm/epilogue.hpp), on the emulator and on a GPU: what they compute.
#include <algorithm>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/problem.hpp"
#include "custom_epilogue_cases.hpp"
#include "jitgemm/jitgemm.hpp"
#include "kernels/packing.hpp"
#include "random.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::own_epilogues;

namespace {

/// By every way out of a kernel.
void is_called_for_each_element(TestDevice& device, Random& random) {
  const char* const configs[] = {
      "sm80 64x64x32 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "sm80 32x32x32 group_m=1 stages=2 warps=2 schedule=split_k splits=3",
      "sm80 64x32x32 group_m=8 stages=2 warps=2 schedule=stream_k grid=3",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=data_parallel",
      "sm90 128x40x64 group_m=8 stages=2 warps=8 swap_ab=true schedule=data_parallel",
      "sm90 128x72x64 group_m=8 stages=2 warps=8 schedule=persistent grid=2",
      "sm90 64x32x64 group_m=8 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=2",
      "sm90 64x32x64 group_m=8 stages=4 warps=4 cluster=1x2x1 schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=4 warps=4 cluster=1x1x2 swap_ab=true schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=split_k splits=2",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=split_k splits=2",
  };
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    for (const DataType d : {f32, f16}) {
      const Problem problem =
          problem_of(random.between(1, 9) * 11, random.between(3, 12) * 8, random.between(1, 4) * 72, d);
      CAPTURE(text, to_string(problem));
      // Half of them by 16 bytes at a time, for which memory has to be aligned.
      const bool aligned = random.between(0, 1);
      const std::int64_t pad = aligned ? random.between(0, 2) * 8 : random.between(0, 3),
                         shift = aligned ? random.between(0, 1) * 8 : random.between(0, 3);
      CAPTURE(pad, shift);
      CHECK(run(device, problem, everything, &config, random, pad, shift) == "");
    }
  }
}

void edges_batches_layouts_and_types(TestDevice& device, Random& random) {
  for (Problem problem :
       {problem_of(1, 1, 1), problem_of(37, 41, 19), problem_of(3, 129, 65), problem_of(65, 7, 128, f16)}) {
    for (const int batch : {1, 3}) {
      problem.batch = batch;
      for (const Layout layout : {Layout::row_major, Layout::column_major}) {
        problem.b.layout = layout;
        CAPTURE(to_string(problem));
        CHECK(run(device, problem, everything, nullptr, random, 1, 1) == "");
        CHECK(run(device, problem, identity, nullptr, random) == "");
      }
    }
  }
  Problem fp8 = problem_of(33, 48, 64, bf16);
  fp8.a.type = e4m3, fp8.b.type = e5m2;
  CHECK(run(device, fp8, everything, nullptr, random) == "");
  const Case doubles{
      "// operand in c matrix f64\n// operand in s scalar\n"
      "__device__ double epilogue(double x, const Args& args, Out&) { return fmax(x, args.c) + args.s; }",
      [](double x, const std::vector<double>& in, int, int, int) {
        return std::vector<double>{std::max(x, in[0]) + in[1]};
      }};
  CHECK(run(device, {.m = 20, .n = 12, .k = 9, .a = {f64}, .b = {f64}, .d = {f64}}, doubles, nullptr, random, 1) == "");
  const Case integers{
      "// operand in c matrix s32\n// operand in s scalar\n// operand out raw matrix s32\n"
      "__device__ int epilogue(int x, const Args& args, Out& out) { out.raw = x; return (x > args.c ? x : "
      "args.c) * args.s; }",
      [](double x, const std::vector<double>& in, int, int, int) {
        return std::vector<double>{std::max(x, in[0]) * in[1], x};
      }};
  CHECK(run(device, {.m = 20, .n = 16, .k = 32, .a = {s8}, .b = {s8, Layout::column_major}, .d = {s32}}, integers,
            nullptr, random, 1) == "");
}

void without_product(TestDevice& device, Random& random) {
  for (const double alpha : {0.0, -0.5, 2.0}) {
    for (const int k : {0, 64}) {
      Problem problem = problem_of(20, 24, k);
      problem.alpha = alpha;
      CAPTURE(alpha, k);
      CHECK(run(device, problem, everything, nullptr, random) == "");
    }
  }
}

}  // namespace

TEST_CASE("An epilogue of one's own is called for each element, by every way out of a kernel",
          "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  ContextOptions options = on_emulator(cache.path());
  options.emulator_seed = random.next();
  TestDevice device(options);
  is_called_for_each_element(device, random);
}

TEST_CASE("Edges, batches, layouts, packed operands and other types have it too", "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  TestDevice device(on_emulator(cache.path()));
  edges_batches_layouts_and_types(device, random);
}

TEST_CASE("A B that is packed slab by slab has operands of all of D's columns", "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  TestDevice device(on_emulator(cache.path()));
  const KernelConfig config =
      parse_kernel_config("sm90 64x16x64 group_m=8 stages=2 warps=4 schedule=data_parallel pack=b");
  const Problem problem = problem_of(2, 180, 190008);
  const Slab slab = slab_of(normalise(problem), config);
  CHECK((slab.columns > 0 && slab.columns < problem.n));
  for (const std::int64_t pad : {0, 3}) {
    CAPTURE(pad);
    CHECK(run(device, problem, everything, &config, random, pad) == "");
  }
}

TEST_CASE("What is multiplied by nothing, and scaled, reaches the function", "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  TestDevice device(on_emulator(cache.path()));
  without_product(device, random);
}

TEST_CASE("On a GPU, epilogues of one's own compute what they do on the emulator", "[custom_epilogue][gpu]") {
  if (cuda_devices().empty()) SKIP("no CUDA device");
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  ContextOptions options = on_emulator(cache.path());
  options.device = Device::cuda;
  TestDevice device(options);
  is_called_for_each_element(device, random);
  edges_batches_layouts_and_types(device, random);
  without_product(device, random);
}

TEST_CASE("A second call compiles nothing, other scalars and operands are run-time arguments",
          "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  {
    TestDevice device(on_emulator(cache.path()));
    CHECK(run(device, problem_of(20, 24, 64), everything, nullptr, random) == "");
    CHECK(device.context.counters().compiles == 1);
    CHECK(run(device, problem_of(20, 24, 64), everything, nullptr, random, 2, 1) == "");
    CHECK(device.context.counters().compiles == 1);
    CHECK(run(device, problem_of(20, 24, 64), identity, nullptr, random) == "");
    CHECK(device.context.counters().compiles == 2);
  }
  TestDevice device(on_emulator(cache.path()));
  CHECK(run(device, problem_of(20, 24, 64), everything, nullptr, random) == "");
  CHECK(device.context.counters().compiles == 0);
}
