#include <array>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "gemm_cases.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "kernels/legality.hpp"
#include "nvrtc.hpp"
#include "plan/candidates.hpp"
#include "plan/cost_model.hpp"
#include "reference.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

const RatedDevice h200(device_info_for("sm_90a"));

NormalProblem fp8(std::int64_t m, std::int64_t n, std::int64_t k, Accumulation accumulation) {
  return normalise({.m = m,
                    .n = n,
                    .k = k,
                    .a = {e4m3},
                    .b = {.type = e4m3, .layout = Layout::column_major},
                    .d = {f32},
                    .accumulation = accumulation});
}

/// One to three consumer warpgroups, ping-pong, swapped operands, and each way to cut a tile.
const std::vector<std::string> configs{
    "sm90 64x32x128 stages=3 warps=4 schedule=data_parallel",
    "sm90 128x48x128 stages=2 warps=8 swap_ab=true schedule=persistent grid=2",
    "sm90 256x32x128 stages=3 warps=8 schedule=data_parallel",
    "sm90 192x32x128 stages=3 warps=12 schedule=data_parallel",
    "sm90 64x32x128 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=1",
    "sm90 64x32x128 stages=3 warps=4 cluster=1x1x2 schedule=data_parallel",
    "sm90 128x32x128 stages=3 warps=8 schedule=split_k splits=2",
    "sm90 128x32x128 stages=3 warps=8 schedule=stream_k grid=4",
};

/// D where two k-blocks come to 2^23 each, and in the others each 32 elements of K to 1, 2 and 4.
double sum(GemmDevice& device, const std::string& config, Accumulation accumulation) {
  const GemmCase gemm = plain_case(fp8(70, 40, 5 * 128, accumulation), parse_kernel_config(config));
  GemmInputs inputs = make_inputs(gemm, Fill::integers, 1);
  const NormalProblem& p = normalise(gemm.problem);
  for (std::int64_t k = 0; k < p.k; ++k) {
    const double first_of_slab = k % 32 == 0 ? double(1 << k / 128) / 4 : 0;
    for (std::int64_t row = 0; row < p.m; ++row)
      store(k < 256 ? 256 : first_of_slab, inputs.a.data() + gemm.offset_a, row * p.a.ld + k, p.a.type);
    for (std::int64_t column = 0; column < p.n; ++column)
      store(k < 256 ? 256 : 1, inputs.b.data() + gemm.offset_b, column * p.b.ld + k, p.b.type);
  }
  const std::vector<char> d = device.run(gemm, inputs);
  const char* const begin = d.data() + d_guard_bytes + gemm.offset_d;
  const double first = load(begin, 0, f32);
  for (std::int64_t row = 0; row < p.m; ++row)
    for (std::int64_t column = 0; column < p.n; ++column) REQUIRE(load(begin, row * p.d.ld + column, f32) == first);
  return first;
}

constexpr double exact = 0x1p24 + 4 * (1 + 2 + 4);

}  // namespace

TEST_CASE("Promoted, every k-block is summed by itself and then added", "[accumulation][emulated]") {
  GemmDevice device(GemmDevice::emulator(3));
  for (const std::string& config : configs) {
    CAPTURE(config);
    CHECK(sum(device, config, Accumulation::promoted) == exact);
  }
  CHECK(sum(device, configs[0], Accumulation::fast) == exact - 4);  // 1 is half of what f32 tells apart at 2^24
}

TEST_CASE("On the GPU, promoted k-blocks lose nothing to what came before them", "[gpu][accumulation]") {
  try {
    GemmDevice device(GemmDevice::cuda());
    if (device.context().device().architecture != "sm_90a") SKIP("wgmma needs sm_90a");
    for (const std::string& config : configs) {
      CAPTURE(config);
      CHECK(sum(device, config, Accumulation::promoted) == exact);
    }
    CHECK(sum(device, configs[0], Accumulation::fast) < exact - 4);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_device) throw;
    SKIP(error.what());
  }
}

TEST_CASE("The portable main loop is one kernel for both accumulations", "[accumulation]") {
  const KernelConfig config{.block_m = 64, .block_n = 64, .block_k = 64, .warps = 4};
  const auto text = [&](Accumulation accumulation) {
    return generate(fp8(64, 64, 64, accumulation), config, h200).text;
  };
  CHECK(text(Accumulation::fast) == text(Accumulation::promoted));
}

TEST_CASE("A thread that promotes holds fewer accumulators", "[accumulation]") {
  const auto legal = [](const std::string& config, Accumulation accumulation) {
    return why_illegal(parse_kernel_config(config), fp8(4096, 4096, 4096, accumulation), h200).empty();
  };
  for (const std::string config :
       {"64x240x128 stages=3 warps=4", "128x208x128 stages=3 warps=8", "192x144x128 stages=3 warps=12"}) {
    CHECK(legal("sm90 " + config, Accumulation::fast));
    CHECK_FALSE(legal("sm90 " + config, Accumulation::promoted));
  }
  for (const std::string config :
       {"64x224x128 stages=3 warps=4", "128x192x128 stages=3 warps=8", "192x128x128 stages=3 warps=12"})
    CHECK(legal("sm90 " + config, Accumulation::promoted));
}

TEST_CASE("The widest tiles that promote compile with NVRTC and spill nothing", "[accumulation][nvrtc]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  const NormalProblem problem = fp8(4096, 4096, 4096, Accumulation::promoted);
  for (const char* config :
       {"sm90 64x96x128 stages=4 warps=4", "sm90 64x224x128 stages=4 warps=4",
        "sm90 128x192x128 stages=4 warps=8 schedule=stream_k", "sm90 256x96x128 stages=4 warps=8",
        "sm90 192x128x128 stages=4 warps=12", "sm90 128x96x128 stages=4 warps=8 consumers=ping_pong"})
    check_spills_nothing(*backend, problem, parse_kernel_config(config));
}

TEST_CASE("Promoted problems have many Hopper candidates, none of them predicted to be faster", "[accumulation]") {
  constexpr std::array shapes{std::array{4096, 4096, 4096}, std::array{240, 592, 128}, std::array{16, 8192, 8192}};
  for (const auto& [m, n, k] : shapes) {
    const NormalProblem fast = fp8(m, n, k, Accumulation::fast), promoted = fp8(m, n, k, Accumulation::promoted);
    CAPTURE(to_string(promoted));
    int hopper = 0;
    for (const KernelConfig& config : candidates(promoted, h200)) {
      hopper += config.main_loop == MainLoop::sm90;
      if (predict_us(config, promoted, h200) < predict_us(config, fast, h200)) FAIL_CHECK(to_string(config));
    }
    CHECK(hopper >= 20);
  }
}
