// Whatever configuration is legal, the driver takes its tensor maps: by what NVIDIA documents of
// cuTensorMapEncodeTiled, which stands here a second time.
#include "kernels/sm90/tensor_maps.hpp"

#include <set>

#include "backend/cuda/tensor_map.hpp"
#include "catch.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "fake_driver.hpp"
#include "jitgemm/jitgemm.hpp"
#include "kernels/kernel_problem.hpp"
#include "kernels/legality.hpp"
#include "kernels/packing.hpp"
#include "plan/ranking.hpp"
#include "random.hpp"
#include "sample_configs.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

cuda::DriverApi strict_driver() {
  cuda::DriverApi api = FakeDriver::api();
  api.tensor_map_encode_tiled = [](CUtensorMap*, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                   const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                   const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                   CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    const unsigned bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8                                                 ? 1
                           : type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? 2
                           : type == CU_TENSOR_MAP_DATA_TYPE_FLOAT64                                             ? 8
                                                                                                                 : 4;
    const unsigned widest = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 128
                            : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                            : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32
                                                                   : 1 << 20;
    bool legal = rank >= 3 && rank <= 5 && reinterpret_cast<std::uintptr_t>(address) % 16 == 0 &&
                 interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && box[0] * bytes % 16 == 0 && box[0] * bytes <= widest;
    for (unsigned i = 0; i < rank; ++i) {
      legal = legal && sizes[i] >= 1 && sizes[i] <= 1ull << 32 && box[i] >= 1 && box[i] <= 256 && steps[i] >= 1 &&
              steps[i] <= 8;
      if (i + 1 < rank) legal = legal && strides[i] % 16 == 0 && strides[i] < 1ull << 40;
    }
    return legal ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  return api;
}

const RatedDevice hopper(device_info_for("sm_90a"));

/// Sizes, strides and tiles of all orders of magnitude.
Problem draw_problem(Random& random) {
  Problem p;
  const auto size = [&] {
    return random.between(0, 3) == 0 ? std::int64_t(1) << random.between(0, 30) : random.log_between(1, 9000);
  };
  p.m = size(), p.n = size(), p.k = size();
  const std::array types{f16, bf16, tf32, e4m3, s8};
  p.a.type = p.b.type = random.pick(types);
  p.d.type = default_output(p.a.type);
  p.a.layout = random.between(0, 1) ? Layout::row_major : Layout::column_major;
  p.b.layout = random.between(0, 1) ? Layout::row_major : Layout::column_major;
  const auto apart = [&] { return random.between(0, 2) ? 0 : std::int64_t(16) << random.between(28, 36); };
  if (random.between(0, 1)) p.a.ld = apart(), p.b.ld = apart(), p.d.ld = apart();
  if (random.between(0, 2) == 0) {
    p.batch = random.between(2, 5);
    if (const std::int64_t stride = apart()) p.a.stride = p.b.stride = p.d.stride = stride;
  }
  return p;
}

/// Makes an epilogue's of pairs of columns of it.
void pair_columns_of(Problem& p, Random& random) {
  const std::string type = p.a.type == s8 ? "int" : "float";
  const std::string line = random.between(0, 1) ? "// pairs halves\n" : "// pairs neighbours\n";
  p.n += p.n % 2;
  p.epilogue.function = define_epilogue(parse_epilogue(line + "__device__ " + type + " epilogue(" + type + " gate, " +
                                                       type + " up, const Args&, Out&) { return gate * up; }"));
}

}  // namespace

TEST_CASE("The driver takes the tensor maps of every configuration that is legal", "[tensor_maps]") {
  const cuda::DriverApi api = strict_driver();
  alignas(16) char memory[16];
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  Random random(test_seed());
  int checked = 0, too_far = 0, paired = 0;
  for (int round = 0; round < 4000; ++round) {
    NormalProblem p;
    try {
      Problem drawn = draw_problem(random);
      if (random.between(0, 1)) pair_columns_of(drawn, random);
      p = normalise(drawn);
    } catch (const Error&) {
      continue;
    }
    KernelConfig c{.main_loop = MainLoop::sm90,
                   .block_m = random.pick(std::array{64, 128, 192, 256, 384}),
                   .block_n = random.between(2, 32) * 8,
                   .block_k = 128 / int(size_of(p.a.type)),
                   .stages = 2,
                   .warps = random.between(1, 3) * 4,
                   .cluster_m = 1 << random.between(0, 2),
                   .cluster_n = 1 << random.between(0, 2),
                   .swap_ab = random.between(0, 1) == 1,
                   .pack_a = random.between(0, 3) == 0,
                   .pack_b = random.between(0, 3) == 0};
    const std::string why = why_illegal(c, p, hopper);
    too_far += why.find("2^40") != std::string::npos;
    if (!why.empty()) continue;
    ++checked;
    paired += has_pairs(p);
    const NormalProblem of_slab = slab_problem(p, slab_of(p, c));
    TensorMaps maps = tensor_maps_of(of_slab, kernel_problem(of_slab, c), c);
    for (TensorMapSpec* map : {&maps.a, &maps.b, &maps.d}) {
      map->address = memory;
      if (map == &maps.d && !maps.has_d()) continue;
      INFO(to_string(p) << "; " << to_string(c));
      REQUIRE_NOTHROW(cuda::encode_tensor_map(api, *map));
    }
  }
  CHECK(checked > 50);
  CHECK(too_far > 5);
  CHECK(paired > 10);
}

TEST_CASE("A tile of 384 rows is one box only where a cluster shares it", "[tensor_maps][kernel_config]") {
  const NormalProblem problem = normalise({.m = 768, .n = 768, .k = 768, .b = {.layout = Layout::column_major}});
  KernelConfig tall{
      .main_loop = MainLoop::sm90, .block_m = 384, .block_n = 64, .block_k = 64, .stages = 2, .warps = 12};
  CHECK(why_illegal(tall, problem, hopper) == "a TMA box has at most 256 rows");
  tall.cluster_n = 2;
  CHECK(why_illegal(tall, problem, hopper) == "");
  Context context({.device = Device::compile_only, .architecture = "sm_90a", .tuning = Tuning::off});
  tall.cluster_n = 1;
  const Error error = error_of([&] { context.plan(problem, tall); });
  CHECK(error.code() == ErrorCode::invalid_config);
  CHECK_THAT(error.what(), ContainsSubstring("a TMA box has at most 256 rows"));
  // Of an M-major A a box has block_k rows.
  CHECK(why_illegal(tall, normalise({.m = 768, .n = 768, .k = 768, .a = {.layout = Layout::column_major}}), hopper) ==
        "");
}

TEST_CASE("Operands that TMA does not reach are packed, or multiplied by the portable loop", "[tensor_maps]") {
  constexpr std::int64_t far = std::int64_t(1) << 39;  // 2^40 bytes of f16
  Problem problem{.m = 256, .n = 256, .k = 256, .b = {.layout = Layout::column_major}};
  const auto best = [&] { return rank(normalise(problem), hopper, 1).at(0).config; };
  problem.a.ld = far;
  CHECK(best().main_loop == MainLoop::sm90);
  CHECK(best().pack_a);
  CHECK_FALSE(best().pack_b);
  problem.a.ld = far - 8;
  CHECK_FALSE(best().pack_a);
  problem.a.ld = 0, problem.d.ld = far;
  CHECK(best().main_loop == MainLoop::sm80);
  problem.d.ld = 0, problem.batch = 2, problem.b.stride = far;
  CHECK(best().main_loop == MainLoop::sm90);
  CHECK(best().pack_b);
  problem.d.stride = far;
  CHECK(best().main_loop == MainLoop::sm80);
}

TEST_CASE("What a tensor map cannot describe has a rule each", "[tensor_maps]") {
  const TensorMapSpec good{.type = f16,
                           .inner = 64,
                           .outer = 64,
                           .batch = 2,
                           .stride = 64,
                           .batch_stride = 4096,
                           .box_inner = 64,
                           .box_outer = 64};
  const auto why = [&](auto change) {
    TensorMapSpec spec = good;
    change(spec);
    return why_unmappable(spec);
  };
  CHECK(why_unmappable(good) == "");
  std::set<std::string> rules{why([](auto& x) { x.inner = 0; }), why([](auto& x) { x.box_inner = 48; }),
                              why([](auto& x) { x.box_outer = 257; }),
                              why([](auto& x) { x.stride = std::int64_t(1) << 39; }),
                              why([](auto& x) { x.batch_stride = 4097; })};
  CHECK(rules.size() == 5);
  CHECK_FALSE(rules.contains(""));
  CHECK(why([](auto& x) { x.outer = (std::int64_t(1) << 32) + 1; }) == why([](auto& x) { x.inner = 0; }));
  CHECK(why([](auto& x) { x.outer = std::int64_t(1) << 32; }) == "");
  CHECK(why([](auto& x) { x.box_outer = 256; }) == "");
  CHECK(why([](auto& x) { x.stride = (std::int64_t(1) << 39) - 8; }) == "");
  CHECK(why([](auto& x) { x.outer = 1, x.stride = -3; }) == "");
  CHECK(why([](auto& x) { x.batch = 1, x.batch_stride = 7; }) == "");
}

TEST_CASE("Rows of groups come in boxes of few, and no other operand's do", "[tensor_maps][groups]") {
  Problem p{.m = 1000, .n = 1000, .k = 512, .batch = 5};
  p.a.type = p.b.type = p.d.type = bf16;
  p.b.layout = Layout::column_major;
  const auto boxes_of = [&](Grouping grouping, const char* config) {
    p.grouping = grouping;
    const NormalProblem normal = normalise(p);
    const KernelConfig c = parse_kernel_config(config + std::string(" schedule=persistent grid=8"));
    REQUIRE(why_illegal(c, normal, hopper) == "");
    const TensorMaps maps = tensor_maps_of(normal, kernel_problem(normal, c), c);
    return std::pair(maps.a.box_outer, maps.b.box_outer);
  };
  struct Case {
    const char* config;
    int of_groups, of_weights;
  };
  const std::vector<Case> rows_in_a{{"sm90 192x128x64 stages=3 warps=12", 64, 128},
                                    {"sm90 128x128x64 stages=3 warps=8 cluster=1x2x1", 32, 128},
                                    {"sm90 64x32x64 stages=3 warps=4", 64, 32}};
  const std::vector<Case> rows_in_b{{"sm90 128x256x64 stages=3 warps=8 cluster=2x1x1 swap_ab=true", 32, 128},
                                    {"sm90 128x240x64 stages=3 warps=8 cluster=2x1x1 swap_ab=true", 24, 128},
                                    {"sm90 128x144x64 stages=3 warps=8 swap_ab=true", 48, 128}};
  for (const Grouping grouping : {Grouping::offsets, Grouping::counts}) {
    for (const Case& x : rows_in_a) CHECK(boxes_of(grouping, x.config) == std::pair(x.of_groups, x.of_weights));
    for (const Case& x : rows_in_b) CHECK(boxes_of(grouping, x.config) == std::pair(x.of_weights, x.of_groups));
  }
  CHECK(boxes_of(Grouping::none, rows_in_a[0].config) == std::pair(192, 128));
}
