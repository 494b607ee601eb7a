// Epilogues of pairs of columns (jitgemm/epilogue.hpp), on the emulator and on a GPU.
#include <string>

#include "catch.hpp"
#include "core/problem.hpp"
#include "gated_cases.hpp"
#include "kernels/packing.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::gated;

namespace {

/// By every way out of a kernel.
void meets_in_each_configuration(TestDevice& device, Random& random) {
  const char* const configs[] = {
      "sm80 64x64x32 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "sm80 32x32x64 group_m=1 stages=2 warps=1 schedule=data_parallel",  // 4 rows a step
      "sm80 32x32x32 group_m=1 stages=2 warps=2 schedule=split_k splits=3",
      "sm80 64x32x32 group_m=8 stages=2 warps=2 schedule=stream_k grid=3",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "sm90 64x48x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=data_parallel",
      "sm90 128x40x64 group_m=8 stages=2 warps=8 swap_ab=true schedule=data_parallel",
      "sm90 256x16x64 group_m=8 stages=2 warps=8 swap_ab=true schedule=data_parallel",
      "sm90 64x184x64 group_m=8 stages=2 warps=4 swap_ab=true schedule=data_parallel",
      "sm90 128x80x64 group_m=8 stages=2 warps=8 schedule=persistent grid=2",
      "sm90 64x208x64 group_m=8 stages=2 warps=4 schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=2",
      "sm90 64x32x64 group_m=8 stages=4 warps=4 cluster=1x2x1 schedule=data_parallel",
      "sm90 64x64x64 group_m=8 stages=4 warps=4 cluster=2x2x1 schedule=data_parallel",
      "sm90 64x48x64 group_m=8 stages=3 warps=4 cluster=2x1x1 schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=4 warps=4 cluster=2x2x1 swap_ab=true schedule=data_parallel",
      "sm90 64x64x64 group_m=8 stages=4 warps=4 cluster=1x1x2 schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=4 warps=4 cluster=1x1x2 swap_ab=true schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=split_k splits=2",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=split_k splits=2",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=stream_k grid=3",
  };
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    for (const bool whole_groups : {true, false}) {
      const Pairing pairs = random.pick(pairings);
      const std::int64_t width = whole_groups ? random.between(1, 14) * 8 : random.between(1, 110);
      const Problem problem = problem_of(random.between(1, 9) * 11, 2 * width, 8 * random.between(9, 30),
                                         random.between(0, 1) == 0 ? f32 : f16);
      CAPTURE(text, to_string(problem), int(pairs));
      CHECK(run(device, problem, pairs, everything, random, {.config = &config, .pad = 8 * random.between(0, 1)}) ==
            "");
    }
  }
}

/// Each layout and alignment of B, each type, as the model chooses.
void layouts_and_types(TestDevice& device, Random& random) {
  for (const Pairing pairs : pairings) {
    for (const Layout layout : {Layout::column_major, Layout::row_major}) {
      for (Problem problem : {problem_of(1, 2, 1), problem_of(37, 42, 19), problem_of(3, 130, 65),
                              problem_of(65, 14, 128, f16), problem_of(70, 96, 64, bf16)}) {
        problem.b.layout = layout;
        problem.batch = random.between(1, 3);
        CAPTURE(to_string(problem), int(pairs));
        CHECK(run(device, problem, pairs, random.between(0, 2) == 0 ? everything : difference, random,
                  {.pad = random.between(0, 2)}) == "");
      }
      struct Types {
        DataType a, b, d;
      };
      for (const Types types : {Types{e4m3, e5m2, bf16}, Types{e4m3, e4m3, e4m3}, Types{tf32, tf32, f32},
                                Types{f32, f32, f32}, Types{f64, f64, f64}, Types{s8, s8, s32}}) {
        Problem problem = problem_of(35, 2 * random.between(3, 9) * random.between(1, 8), 80, types.d, layout);
        problem.a.type = types.a, problem.b.type = types.b;
        CAPTURE(to_string(problem), int(pairs));
        Case one = difference;
        const std::string type = types.a == f64 ? "double" : types.a == s8 ? "int" : "float";
        if (type != "float")
          for (std::size_t at; (at = one.text.find("float")) != std::string::npos;) one.text.replace(at, 5, type);
        const How how{.scale_d = types.d == e4m3 ? 0.5f : 1.0f};
        CHECK(run(device, problem, pairs, one, random, how) == "");
      }
    }
  }
}

/// The ways of the portable loop to N-major columns, and of packing.
void sources_of_pairs(TestDevice& device, Random& random) {
  const char* const configs[] = {
      "sm80 64x64x32 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "sm80 32x64x64 group_m=8 stages=2 warps=2 schedule=data_parallel",
      "sm90 64x64x64 group_m=8 stages=2 warps=4 schedule=data_parallel pack=b",
      "sm90 64x32x64 group_m=8 stages=2 warps=4 swap_ab=true schedule=data_parallel pack=b",
      "sm90 64x64x64 group_m=8 stages=2 warps=4 schedule=data_parallel pack=ab",
  };
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    for (const Pairing pairs : pairings)
      for (const Layout layout : {Layout::column_major, Layout::row_major})
        for (const int k : {80, 77}) {
          Problem problem = problem_of(random.between(1, 80), 2 * random.between(1, 70), k, f16, layout);
          problem.batch = random.between(1, 2);
          if (config.main_loop == MainLoop::sm90 && !config.pack_a && k % 8 != 0) continue;
          CAPTURE(text, to_string(problem), int(pairs));
          CHECK(run(device, problem, pairs, everything, random, {.config = &config, .pad = random.between(0, 3)}) ==
                "");
        }
  }
}

}  // namespace

TEST_CASE("Both columns of a pair meet, by every way out of a kernel", "[gated_epilogue][emulator]") {
  run_emulated(meets_in_each_configuration);
}

TEST_CASE("Pairs are of each layout, alignment and type", "[gated_epilogue][emulator]") {
  run_emulated(layouts_and_types);
}

TEST_CASE("Pairs are found in rows and columns of B, packed and not", "[gated_epilogue][emulator]") {
  run_emulated(sources_of_pairs);
}

TEST_CASE("A B that is packed slab by slab has both columns of a pair in one", "[gated_epilogue][emulator]") {
  run_emulated([](TestDevice& device, Random& random) {
    struct Slabs {
      const char* config;
      DataType type;
      std::int64_t n, k;
    };
    for (const auto& [text, type, n, k] :
         {Slabs{"sm90 64x32x64 group_m=8 stages=2 warps=4 schedule=data_parallel pack=b", f16, 208, 190000},
          Slabs{"sm90 64x16x32 group_m=8 stages=2 warps=4 swap_ab=true schedule=data_parallel pack=b", tf32, 144,
                130000}})
      for (const Pairing pairs : pairings)
        for (const Layout layout : {Layout::row_major, Layout::column_major}) {
          const KernelConfig config = parse_kernel_config(text);
          Problem problem = problem_of(3, n, k, f32, layout);
          problem.a.type = problem.b.type = type;
          problem.epilogue.function = define_epilogue(parse_epilogue(line_of(pairs) + everything.text));
          CAPTURE(to_string(problem), int(pairs));
          const NormalProblem normal = normalise(problem);
          const Slab slab = slab_of(normal, config);
          CHECK((slab.columns > 0 && slab.columns < n));
          CHECK(run(device, problem, pairs, everything, random, {.config = &config}) == "");
          problem.n = n + 2;  // no whole groups of pairs
          CHECK(slab_of(normalise(problem), config).rows == 0);
        }
  });
}

TEST_CASE("On a GPU, pairs meet as on the emulator", "[gated_epilogue][gpu]") {
  if (cuda_devices().empty()) SKIP("no CUDA device");
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  ContextOptions options = on_emulator(cache.path(), random);
  options.device = Device::cuda;
  TestDevice device(options);
  meets_in_each_configuration(device, random);
  layouts_and_types(device, random);
  sources_of_pairs(device, random);
}
