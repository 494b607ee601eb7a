#include <array>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "gemm_cases.hpp"
#include "geometry_sm90.cuh"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "kernels/kernel_problem.hpp"
#include "kernels/legality.hpp"
#include "kernels/parameters.hpp"
#include "nvrtc.hpp"
#include "plan/candidates.hpp"
#include "plan/cost_model.hpp"
#include "plan/ranking.hpp"
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

constexpr Scaling each_row = Scaling::block_1x128, squares = Scaling::block_128x128;

/// Promoted, by single scales or by those of blocks.
NormalProblem scaled(std::int64_t m, std::int64_t n, std::int64_t k, Scaling of_a, Scaling of_b) {
  return normalise({.m = m,
                    .n = n,
                    .k = k,
                    .a = {.type = e4m3, .scaling = of_a},
                    .b = {.type = e4m3, .layout = Layout::column_major, .scaling = of_b},
                    .d = {bf16},
                    .accumulation = Accumulation::promoted});
}

/// One to three consumer warpgroups, ping-pong, swapped operands, and each way to cut a tile; consumers of 64 rows, of
/// two and three times as many that are promoted at once, and 64 rows at a time; two and four k-blocks at once.
const std::vector<std::string> configs{
    "sm90 64x32x128 stages=3 warps=4 schedule=data_parallel",
    "sm90 128x48x128 stages=2 warps=8 swap_ab=true schedule=persistent grid=2",
    "sm90 256x32x128 stages=3 warps=8 schedule=data_parallel",
    "sm90 192x32x128 stages=3 warps=12 schedule=data_parallel",
    "sm90 64x32x128 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=1",
    "sm90 64x32x128 stages=3 warps=4 cluster=1x1x2 schedule=data_parallel",
    "sm90 128x32x128 stages=3 warps=8 schedule=split_k splits=2",
    "sm90 128x32x128 stages=3 warps=8 schedule=stream_k grid=4",
    "sm90 192x32x128 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=1",
    "sm90 256x128x128 stages=2 warps=8 schedule=persistent grid=1",
    "sm90 256x128x128 stages=2 warps=8 swap_ab=true schedule=data_parallel",
    "sm90 192x96x128 stages=2 warps=8 consumers=ping_pong schedule=persistent grid=1",
    "sm90 128x128x128 stages=2 warps=4 schedule=stream_k grid=2",
    "sm90 128x64x128 stages=4 warps=8 schedule=persistent grid=1",
    "sm90 64x32x128 stages=8 warps=4 schedule=data_parallel",
    "sm90 64x32x128 stages=8 warps=8 consumers=ping_pong schedule=stream_k grid=3",
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

TEST_CASE("A thread that promotes holds the products of 64 rows beside its sums", "[accumulation]") {
  const auto legal = [](const std::string& config, Accumulation accumulation) {
    return why_illegal(parse_kernel_config(config), fp8(4096, 4096, 4096, accumulation), h200).empty();
  };
  for (const std::string config :
       {"64x240x128 stages=3 warps=4", "128x208x128 stages=3 warps=8", "256x144x128 stages=3 warps=8",
        "192x144x128 stages=3 warps=12", "192x112x128 stages=3 warps=8 consumers=ping_pong"}) {
    CHECK(legal("sm90 " + config, Accumulation::fast));
    CHECK_FALSE(legal("sm90 " + config, Accumulation::promoted));
  }
  for (const std::string config : {"64x224x128 stages=3 warps=4", "128x128x128 stages=3 warps=4",
                                   "128x192x128 stages=3 warps=8", "256x128x128 stages=3 warps=8",
                                   "192x128x128 stages=3 warps=12", "192x96x128 stages=3 warps=8 consumers=ping_pong"})
    CHECK(legal("sm90 " + config, Accumulation::promoted));
}

TEST_CASE("Where registers allow a consumer's rows are promoted at once", "[accumulation]") {
  const NormalProblem promoted = fp8(4096, 4096, 4096, Accumulation::promoted),
                      fast = fp8(4096, 4096, 4096, Accumulation::fast),
                      of_columns = scaled(4096, 4096, 4096, squares, each_row);
  const auto rows = [&](const std::string& config, const NormalProblem& problem) {
    const KernelConfig c = parse_kernel_config("sm90 " + config);
    return device::sm90::geometry(parameters_of(c, kernel_problem(problem, c))).rows_promoted;
  };
  CHECK(rows("128x192x128 stages=3 warps=8", promoted) == 64);
  CHECK(rows("256x96x128 stages=3 warps=8", promoted) == 128);
  CHECK(rows("256x112x128 stages=3 warps=8", promoted) == 64);
  CHECK(rows("256x128x128 stages=3 warps=8", promoted) == 64);
  CHECK(rows("256x128x128 stages=3 warps=8", fast) == 128);
  CHECK(rows("256x80x128 stages=3 warps=8", of_columns) == 128);
  CHECK(rows("256x96x128 stages=3 warps=8", of_columns) == 64);
  CHECK(rows("192x64x128 stages=3 warps=8 consumers=ping_pong", promoted) == 192);
  CHECK(rows("192x80x128 stages=3 warps=8 consumers=ping_pong", promoted) == 64);
}

TEST_CASE("Where one k-block's products fit, the halves of many columns are multiplied apart", "[accumulation]") {
  const auto columns = [&](const std::string& config, const NormalProblem& problem) {
    const KernelConfig c = parse_kernel_config("sm90 " + config);
    return device::sm90::geometry(parameters_of(c, kernel_problem(problem, c))).columns_promoted;
  };
  const NormalProblem blocks = scaled(4096, 4096, 4096, each_row, squares);
  CHECK(columns("128x192x128 stages=4 warps=8", blocks) == 96);
  CHECK(columns("64x192x128 stages=4 warps=4", blocks) == 96);
  CHECK(columns("128x176x128 stages=4 warps=8", blocks) == 176);  // halves are narrower than 96
  CHECK(columns("128x128x128 stages=5 warps=8", blocks) == 128);  // so are these, and two k-blocks fit
  CHECK(columns("256x128x128 stages=3 warps=8", blocks) == 128);
  CHECK(columns("128x192x128 stages=4 warps=8", fp8(4096, 4096, 4096, Accumulation::promoted)) == 192);
}

TEST_CASE("A consumer of 64 rows promotes two k-blocks at once where registers and stages allow it", "[accumulation]") {
  const NormalProblem promoted = fp8(4096, 4096, 4096, Accumulation::promoted),
                      fast = fp8(4096, 4096, 4096, Accumulation::fast),
                      of_columns = scaled(4096, 4096, 4096, squares, each_row);
  const auto k_blocks = [&](const std::string& config, const NormalProblem& problem) {
    const KernelConfig c = parse_kernel_config("sm90 " + config);
    return device::sm90::geometry(parameters_of(c, kernel_problem(problem, c))).k_blocks_promoted;
  };
  CHECK(k_blocks("128x64x128 stages=4 warps=8", promoted) == 2);
  CHECK(k_blocks("128x64x128 stages=3 warps=8", promoted) == 1);  // the producer has as many stages
  CHECK(k_blocks("128x128x128 stages=5 warps=8", promoted) == 2);
  CHECK(k_blocks("128x144x128 stages=5 warps=8", promoted) == 1);
  CHECK(k_blocks("128x128x128 stages=4 warps=8", of_columns) == 1);
  CHECK(k_blocks("64x64x128 stages=12 warps=4", promoted) == 2);  // two CTAs share the SM's registers
  CHECK(k_blocks("64x48x128 stages=12 warps=4", promoted) == 2);
  CHECK(k_blocks("192x64x128 stages=4 warps=12", promoted) == 2);
  CHECK(k_blocks("192x96x128 stages=4 warps=12", promoted) == 1);
  CHECK(k_blocks("256x64x128 stages=5 warps=8", promoted) == 1);
  CHECK(k_blocks("128x64x128 stages=8 warps=8", fast) == 1);
}

TEST_CASE("The widest tile is the widest that is legal", "[accumulation]") {
  for (const NormalProblem& problem :
       {fp8(4096, 4096, 4096, Accumulation::fast), fp8(4096, 4096, 4096, Accumulation::promoted),
        scaled(4096, 4096, 4096, each_row, squares), scaled(4096, 4096, 4096, squares, each_row)})
    for (const char* rows : {"64x16x128 warps=4", "128x16x128 warps=4", "128x16x128 warps=8", "256x16x128 warps=8",
                             "192x16x128 warps=12", "128x16x128 warps=8 consumers=ping_pong schedule=persistent grid=1",
                             "192x16x128 warps=8 consumers=ping_pong schedule=persistent grid=1"}) {
      KernelConfig config = parse_kernel_config(std::string("sm90 ") + rows + " stages=2");
      int widest = 0;
      for (config.block_n = 16; config.block_n <= 256; config.block_n += 16)
        if (why_illegal(config, problem, h200).find("a thread") == std::string::npos) widest = config.block_n;
      CAPTURE(rows, to_string(problem), widest);
      CHECK(device::sm90::widest_tile(parameters_of(config, kernel_problem(problem, config))) / 16 * 16 == widest);
    }
}

TEST_CASE("The widest tiles that promote compile with NVRTC and spill nothing", "[accumulation][nvrtc]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  const NormalProblem problem = fp8(4096, 4096, 4096, Accumulation::promoted);
  for (const char* config :
       {"sm90 64x96x128 stages=4 warps=4", "sm90 64x224x128 stages=4 warps=4", "sm90 128x128x128 stages=4 warps=4",
        "sm90 128x192x128 stages=4 warps=8 schedule=stream_k", "sm90 256x96x128 stages=4 warps=8",
        "sm90 256x128x128 stages=3 warps=8 schedule=stream_k", "sm90 256x128x128 stages=4 warps=8",
        "sm90 256x128x128 stages=4 warps=8 cluster=1x2x1 swap_ab=true schedule=persistent grid=132",
        "sm90 192x128x128 stages=4 warps=12", "sm90 128x96x128 stages=4 warps=8 consumers=ping_pong",
        "sm90 192x96x128 stages=4 warps=8 consumers=ping_pong schedule=persistent grid=132"})
    check_spills_nothing(*backend, problem, parse_kernel_config(config));
}

TEST_CASE("The widest tiles that promote by scales of blocks compile with NVRTC and spill nothing",
          "[accumulation][scales][nvrtc]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  const auto spills_nothing = [&](Scaling a, Scaling b, const std::string& config) {
    check_spills_nothing(*backend, scaled(4096, 4096, 4096, a, b), parse_kernel_config("sm90 " + config));
  };
  for (const char* schedule : {"schedule=data_parallel", "schedule=persistent grid=132", "schedule=stream_k grid=132"})
    spills_nothing(each_row, squares, std::string("256x128x128 stages=3 warps=8 ") + schedule);
  spills_nothing(each_row, squares, "256x96x128 stages=3 warps=8");
  spills_nothing(each_row, squares, "192x128x128 stages=3 warps=12");
  spills_nothing(each_row, squares, "256x112x128 stages=3 warps=8 swap_ab=true");
  spills_nothing(squares, each_row, "256x128x128 stages=3 warps=8 swap_ab=true");
  spills_nothing(each_row, each_row, "256x112x128 stages=3 warps=8 schedule=persistent grid=132");
  spills_nothing(each_row, squares, "192x96x128 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=132");
}

TEST_CASE("Large problems that promote are multiplied by tiles of 256 x 128", "[accumulation][scales][candidates]") {
  const auto chosen = [](std::int64_t m, std::int64_t n, std::int64_t k, bool of_blocks) {
    const NormalProblem problem =
        scaled(m, n, k, of_blocks ? each_row : Scaling::value, of_blocks ? squares : Scaling::value);
    const KernelConfig c = rank(problem, h200, 1).at(0).config;
    return std::array{c.block_m, c.block_n};
  };
  for (const bool of_blocks : {false, true}) CHECK(chosen(4096, 4096, 7168, of_blocks) == std::array{256, 128});
  CHECK(chosen(4096, 7168, 16384, true) == std::array{256, 128});  // else 128 x 176 ties with it
  CHECK(chosen(4096, 24576, 1536, true) == std::array{256, 128});
  // Swapped, each of A's scales is a column's: 195 us on an H200 where 113 do.
  CHECK_FALSE(rank(scaled(4096, 2112, 7168, each_row, squares), h200, 1).at(0).config.swap_ab);
  CHECK(chosen(512, 24576, 1536, true) == std::array{256, 128});
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
