#include <array>
#include <string>
#include <utility>

#include "catch.hpp"
#include "core/device_info.hpp"
#include "core/kernel_config_hash.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "errors.hpp"
#include "geometry_sm90.cuh"
#include "jitgemm/error.hpp"
#include "kernels/legality.hpp"
#include "kernels/parameters.hpp"
#include "random.hpp"

using namespace jitgemm;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using jitgemm::test::Random;

namespace {

std::string refusal(std::string_view text) {
  return test::refusal(ErrorCode::invalid_config, [&] { parse_kernel_config(text); });
}

constexpr std::array schedules{Schedule::data_parallel, Schedule::persistent,        Schedule::split_k,
                               Schedule::stream_k,      Schedule::stream_k_one_tile, Schedule::stream_k_two_tile};

const NormalProblem square = normalise({.m = 512, .n = 512, .k = 512});
const DeviceInfo hopper = device_info_for("sm_90a");

std::string why(auto change, KernelConfig config = {}, const NormalProblem& problem = square,
                const DeviceInfo& device = hopper) {
  change(config);
  return why_illegal(config, problem, device);
}

const KernelConfig wgmma{
    .main_loop = MainLoop::sm90, .block_m = 128, .block_n = 128, .block_k = 64, .stages = 4, .warps = 8};

KernelConfig with(KernelConfig config, auto change) {
  change(config);
  return config;
}

}  // namespace

TEST_CASE("A configuration prints as one short line", "[kernel_config]") {
  CHECK(to_string(KernelConfig{}) == "sm80 128x128x32 group_m=8 stages=3 warps=4 schedule=data_parallel");
  CHECK(to_string(KernelConfig{.main_loop = MainLoop::sm90,
                               .block_n = 256,
                               .block_k = 64,
                               .stages = 4,
                               .warps = 8,
                               .cluster_m = 2,
                               .schedule = Schedule::split_k,
                               .splits = 4}) ==
        "sm90 128x256x64 group_m=8 stages=4 warps=8 cluster=2x1x1 schedule=split_k splits=4");
  CHECK(to_string(KernelConfig{.group_m = 0, .schedule = Schedule::stream_k_two_tile, .grid = 132}) ==
        "sm80 128x128x32 group_m=0 stages=3 warps=4 schedule=stream_k_two_tile grid=132");
  CHECK(to_string(KernelConfig{.main_loop = MainLoop::sm90, .pack_a = true, .pack_b = true}) ==
        "sm90 128x128x32 group_m=8 stages=3 warps=4 pack=ab schedule=data_parallel");
  CHECK(to_string(KernelConfig{
            .main_loop = MainLoop::sm90, .warps = 8, .cluster_k = 4, .ping_pong = true, .swap_ab = true}) ==
        "sm90 128x128x32 group_m=8 stages=3 warps=8 cluster=1x1x4 swap_ab=true consumers=ping_pong "
        "schedule=data_parallel");
  CHECK(to_string(KernelConfig{.main_loop = MainLoop::sm90, .cluster_m = 2, .cluster_at_launch = true}) ==
        "sm90 128x128x32 group_m=8 stages=3 warps=4 cluster=2x1x1 cluster_at_launch=true schedule=data_parallel");
  CHECK(parse_kernel_config("consumers=cooperative swap_ab=false") == KernelConfig{});
  CHECK(parse_kernel_config("pack=a") == KernelConfig{.pack_a = true});
  CHECK(parse_kernel_config("pack=b") == KernelConfig{.pack_b = true});
}

TEST_CASE("Every configuration reads back as it was printed", "[kernel_config]") {
  Random random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto draw = [&random](int high) { return random.between(0, 2) == 0 ? 1 : random.between(0, high); };
    const KernelConfig config{.main_loop = random.between(0, 1) == 0 ? MainLoop::sm80 : MainLoop::sm90,
                              .block_m = draw(512),
                              .block_n = draw(512),
                              .block_k = draw(256),
                              .group_m = draw(64),
                              .stages = draw(16),
                              .warps = draw(16),
                              .cluster_m = draw(4),
                              .cluster_n = draw(4),
                              .cluster_k = draw(8),
                              .ping_pong = random.between(0, 1) == 1,
                              .swap_ab = random.between(0, 1) == 1,
                              .pack_a = random.between(0, 1) == 1,
                              .pack_b = random.between(0, 1) == 1,
                              .schedule = random.pick(schedules),
                              .splits = draw(64),
                              .grid = draw(70'000),
                              .cluster_at_launch = random.between(0, 1) == 1};
    const KernelConfig again = parse_kernel_config(to_string(config));
    if (again != config) FAIL(to_string(config) << " reads back as " << to_string(again));
    if (hash_value(again) != hash_value(config)) FAIL("equal configurations hash differently");
  }
}

TEST_CASE("Fields may be left out, in any order, and mean their default", "[kernel_config]") {
  CHECK(parse_kernel_config("sm80") == KernelConfig{});
  CHECK(parse_kernel_config("64x256x32") == KernelConfig{.block_m = 64, .block_n = 256});
  CHECK(parse_kernel_config("  grid=7 \t schedule=stream_k\tsm90 ") ==
        KernelConfig{.main_loop = MainLoop::sm90, .schedule = Schedule::stream_k, .grid = 7});
  CHECK(parse_kernel_config(
            "sm90 128x256x64 group_m=8 stages=4 warps=8 cluster=1x1x1 schedule=split_k splits=4 grid=0") ==
        KernelConfig{.main_loop = MainLoop::sm90,
                     .block_n = 256,
                     .block_k = 64,
                     .stages = 4,
                     .warps = 8,
                     .schedule = Schedule::split_k,
                     .splits = 4});
}

TEST_CASE("A configuration that cannot be read is refused by the word at fault", "[kernel_config]") {
  for (const char* word : {"sm70",        "128x128",       "128x128x32x4",
                           "x128x32",     "128x12ax32",    "warps",
                           "warps=",      "warps=4.5",     "warps=99999999999",
                           "=4",          "block_m=128",   "schedule=streamk",
                           "cluster=2",   "cluster=2x1",   "swap_ab=",
                           "operands=ba", "consumers=two", "sm80,",
                           "pack=",       "pack=ba",       "pack=c"}) {
    CHECK_THAT(refusal(std::string("stages=3 ") + word), ContainsSubstring("\"" + std::string(word) + "\""));
  }
  CHECK_THAT(refusal(""), ContainsSubstring("empty"));
  CHECK_THAT(refusal("   "), ContainsSubstring("empty"));
  CHECK_THAT(refusal("warps=4 warps=8"), ContainsSubstring("second time"));
  CHECK_THAT(refusal("sm80 sm90"), ContainsSubstring("second time"));
  CHECK_THAT(refusal("64x64x32 128x128x32"), ContainsSubstring("second time"));
}

TEST_CASE("Schedules read back by name", "[kernel_config]") {
  for (Schedule schedule : schedules) CHECK(parse_schedule(to_string(schedule)) == schedule);
  CHECK_FALSE(parse_schedule("data-parallel"));
  CHECK_FALSE(parse_schedule(""));
}

TEST_CASE("The defaults and the Hopper tiles are legal", "[kernel_config]") {
  CHECK(why([](KernelConfig&) {}) == "");
  CHECK(why([](KernelConfig&) {}, wgmma) == "");
  CHECK(why([](KernelConfig& c) { c.block_n = 256; }, wgmma) == "");
}

TEST_CASE("Each rule of a configuration is refused by name", "[kernel_config]") {
  CHECK_THAT(why([](KernelConfig& c) { c.block_k = 16; }), ContainsSubstring("block_k"));
  CHECK_THAT(why([](KernelConfig& c) { c.block_m = 96; }), ContainsSubstring("block_m"));
  CHECK_THAT(why([](KernelConfig& c) { c.block_n = 512; }), ContainsSubstring("block_n"));
  CHECK_THAT(why([](KernelConfig& c) { c.warps = 3; }), ContainsSubstring("warps"));
  CHECK_THAT(why([](KernelConfig& c) { c.stages = 1; }), ContainsSubstring("2 stages"));
  CHECK_THAT(why([](KernelConfig& c) { c.group_m = -1; }), ContainsSubstring("group_m"));
  CHECK_THAT(why([](KernelConfig& c) { c.cluster_m = 2; }), ContainsSubstring("clusters"));
  CHECK_THAT(why([](KernelConfig& c) { c.splits = 2; }), ContainsSubstring("splits"));
  CHECK_THAT(why([](KernelConfig& c) { c.schedule = Schedule::split_k, c.splits = 0; }), ContainsSubstring("splits"));
  CHECK_THAT(why([](KernelConfig& c) { c.schedule = Schedule::stream_k, c.grid = -1; }), ContainsSubstring("grid"));
  CHECK_THAT(why([](KernelConfig& c) { c.grid = 8; }), ContainsSubstring("grid"));
  CHECK_THAT(why([](KernelConfig& c) { c.block_m = c.block_n = 256, c.warps = 4; }), ContainsSubstring("accumulators"));
  CHECK_THAT(why([](KernelConfig& c) { c.stages = 8, c.block_k = 64; }), ContainsSubstring("shared memory"));
}

TEST_CASE("Each rule of the Hopper main loop is refused by name", "[kernel_config]") {
  CHECK_THAT(why([](KernelConfig& c) { c.block_k = 32; }, wgmma), ContainsSubstring("block_k"));
  CHECK_THAT(why([](KernelConfig& c) { c.warps = 16; }, wgmma), ContainsSubstring("warpgroups"));
  CHECK_THAT(why([](KernelConfig& c) { c.warps = 6; }, wgmma), ContainsSubstring("warpgroups"));
  CHECK_THAT(why([](KernelConfig& c) { c.block_m = 192; }, wgmma), ContainsSubstring("64, 128 or 192 rows"));
  CHECK_THAT(why([](KernelConfig& c) { c.block_m = 64; }, wgmma), ContainsSubstring("64, 128 or 192 rows"));
  CHECK_THAT(why([](KernelConfig& c) { c.block_m = 128, c.warps = 12; }, wgmma),
             ContainsSubstring("64, 128 or 192 rows"));
  CHECK_THAT(why([](KernelConfig& c) { c.block_n = 100; }, wgmma), ContainsSubstring("block_n"));
  CHECK_THAT(why([](KernelConfig& c) { c.block_n = 8; }, wgmma), ContainsSubstring("block_n"));
  CHECK_THAT(why([](KernelConfig& c) { c.block_n = 264; }, wgmma), ContainsSubstring("block_n"));
  CHECK_THAT(why([](KernelConfig& c) { c.stages = 17; }, wgmma), ContainsSubstring("2 stages"));
  CHECK_THAT(why([](KernelConfig& c) { c.stages = 8; }, wgmma), ContainsSubstring("shared memory"));
  const KernelConfig bytes = with(wgmma, [](KernelConfig& c) { c.block_k = 128; });
  const NormalProblem fp8 =
      normalise({.m = 512, .n = 512, .k = 512, .a = {e4m3}, .b = {.type = e4m3, .layout = Layout::column_major}});
  CHECK(why([](KernelConfig& c) { c.block_n = 96; }, bytes, fp8) == "");
  CHECK_THAT(why([](KernelConfig& c) { c.block_n = 104; }, bytes, fp8), ContainsSubstring("of 8-bit operands 16"));
}

TEST_CASE("A thread's accumulators are bounded by its registers", "[kernel_config]") {
  const auto tile = [](int block_m, int block_n, int warps, bool ping_pong = false) {
    return [=](KernelConfig& c) { c = {c.main_loop, block_m, block_n, 64, 8, 2, warps}, c.ping_pong = ping_pong; };
  };
  CHECK(why(tile(64, 256, 4), wgmma) == "");
  CHECK(why(tile(128, 128, 4), wgmma) == "");
  CHECK_THAT(why(tile(128, 136, 4), wgmma), ContainsSubstring("accumulators"));
  CHECK(why(tile(256, 168, 8), wgmma) == "");
  CHECK_THAT(why(tile(256, 176, 8), wgmma), ContainsSubstring("accumulators"));
  CHECK(why(tile(192, 192, 12), wgmma) == "");
  CHECK_THAT(why(tile(192, 200, 12), wgmma), ContainsSubstring("accumulators"));
  CHECK(why(tile(128, 168, 8, true), wgmma) == "");
  CHECK_THAT(why(tile(128, 176, 8, true), wgmma), ContainsSubstring("accumulators"));
  CHECK(why(tile(192, 112, 8, true), wgmma) == "");
  CHECK_THAT(why(tile(192, 120, 8, true), wgmma), ContainsSubstring("accumulators"));
}

TEST_CASE("Ping-pong has two consumer warpgroups with a tile each", "[kernel_config]") {
  const auto ping_pong = [](int block_m, int warps) {
    return [=](KernelConfig& c) { c.ping_pong = true, c.block_m = block_m, c.warps = warps; };
  };
  CHECK(why(ping_pong(64, 8), wgmma) == "");
  CHECK(why(ping_pong(128, 8), wgmma) == "");
  CHECK_THAT(why(ping_pong(64, 4), wgmma), ContainsSubstring("ping-pong"));
  CHECK_THAT(why(ping_pong(128, 12), wgmma), ContainsSubstring("ping-pong"));
  CHECK(why(
            [&](KernelConfig& c) {
              ping_pong(192, 8)(c);
              c.block_n = 96;
            },
            wgmma) == "");
  CHECK_THAT(why(ping_pong(256, 8), wgmma), ContainsSubstring("64, 128 or 192 rows"));
}

TEST_CASE("Clusters have 8 blocks at most, which share tiles of any width", "[kernel_config]") {
  const auto cluster = [](int m, int n, int k, int block_n = 128) {
    return [=](KernelConfig& c) { c.cluster_m = m, c.cluster_n = n, c.cluster_k = k, c.block_n = block_n; };
  };
  for (const auto& [m, n, k] : {std::array{2, 1, 1}, std::array{1, 2, 1}, std::array{4, 2, 1}, std::array{8, 1, 1},
                                std::array{1, 1, 8}, std::array{2, 1, 4}, std::array{1, 2, 4}, std::array{2, 2, 2}})
    CHECK(why(cluster(m, n, k), wgmma) == "");
  for (const auto& [m, n, k] : {std::array{3, 1, 1}, std::array{1, 0, 1}, std::array{1, 1, -2}, std::array{16, 1, 1},
                                std::array{4, 4, 1}, std::array{4, 1, 4}, std::array{1, 6, 1}})
    CHECK_THAT(why(cluster(m, n, k), wgmma), ContainsSubstring("8 thread blocks at most"));
  CHECK(why(cluster(2, 1, 1, 40), wgmma) == "");  // an N-major B is split along k
  const NormalProblem k_major = normalise({.m = 512, .n = 512, .k = 512, .b = {.layout = Layout::column_major}});
  for (const int width : {16, 40, 48, 104})  // parts may come to more
    for (const int m : {2, 4, 8}) CHECK(why(cluster(m, 1, 1, width), wgmma, k_major) == "");
  for (const int m : {2, 4}) CHECK_THAT(why(cluster(m, 1, 1)), ContainsSubstring("clusters"));
  for (const Schedule schedule : {Schedule::persistent, Schedule::stream_k}) {
    const auto grid = [&](int blocks) {
      return [=](KernelConfig& c) { cluster(2, 2, 1)(c), c.schedule = schedule, c.grid = blocks; };
    };
    for (const int blocks : {0, 4, 12}) CHECK(why(grid(blocks), wgmma) == "");
    for (const int blocks : {1, 3, 6, 13}) CHECK_THAT(why(grid(blocks), wgmma), ContainsSubstring("multiple of 4"));
  }
}

TEST_CASE("A launch chooses the cluster of whole tiles, whose parts are whole", "[kernel_config]") {
  const auto at_launch = [](auto change) { return [=](KernelConfig& c) { c.cluster_at_launch = true, change(c); }; };
  const auto cluster = [&](int m, int n, int block_n) {
    return at_launch([=](KernelConfig& c) { c.cluster_m = m, c.cluster_n = n, c.block_n = block_n; });
  };
  const NormalProblem k_major = normalise({.m = 512, .n = 512, .k = 512, .b = {.layout = Layout::column_major}});
  CHECK(why(cluster(4, 2, 96), wgmma, k_major) == "");
  CHECK(why(cluster(1, 8, 40), wgmma, k_major) == "");
  CHECK(why(cluster(8, 1, 40), wgmma) == "");  // an N-major B is split along k
  for (const int width : {40, 104})
    CHECK_THAT(why(cluster(2, 1, width), wgmma, k_major), ContainsSubstring("whole parts"));
  CHECK_THAT(why(cluster(8, 1, 96), wgmma, k_major), ContainsSubstring("block_n of 8 cluster_m"));
  CHECK_THAT(why(cluster(4, 4, 96), wgmma, k_major), ContainsSubstring("8 thread blocks at most"));
  CHECK_THAT(why(at_launch([](KernelConfig& c) { c.schedule = Schedule::split_k, c.splits = 2; }), wgmma),
             ContainsSubstring("whole tiles: data_parallel or persistent"));
  CHECK_THAT(why(at_launch([](KernelConfig& c) { c.schedule = Schedule::stream_k, c.grid = 8; }), wgmma),
             ContainsSubstring("whole tiles: data_parallel or persistent"));
  Problem groups{.m = 512, .n = 512, .k = 512, .batch = 4};
  groups.b.layout = Layout::column_major;
  groups.grouping = Grouping::offsets;
  CHECK_THAT(why(at_launch([](KernelConfig& c) { c.schedule = Schedule::persistent; }), wgmma, normalise(groups)),
             ContainsSubstring("no cluster of groups"));
  CHECK_THAT(why(at_launch([](KernelConfig&) {})), ContainsSubstring("clusters"));
}

TEST_CASE("Clusters that split k have one tile or part, are cooperative and have work and room for all",
          "[kernel_config]") {
  const auto four = [](auto change) { return [=](KernelConfig& c) { c.cluster_k = 4, change(c); }; };
  CHECK(why(four([](KernelConfig&) {}), wgmma) == "");
  CHECK_THAT(why(four([](KernelConfig& c) { c.schedule = Schedule::persistent; }), wgmma),
             ContainsSubstring("data-parallel"));
  CHECK_THAT(why(four([](KernelConfig& c) { c.schedule = Schedule::stream_k, c.grid = 8; }), wgmma),
             ContainsSubstring("data-parallel"));
  const auto parts = [&](int splits, int grid = 0) {
    return four([=](KernelConfig& c) { c.schedule = Schedule::split_k, c.splits = splits, c.grid = grid; });
  };
  CHECK(why(parts(2), wgmma) == "");
  CHECK_THAT(why(parts(2, 8), wgmma), ContainsSubstring("no grid of their own"));
  const NormalProblem nine_blocks = normalise({.m = 512, .n = 512, .k = 520});
  CHECK(why(parts(2), wgmma, nine_blocks) == "");
  CHECK_THAT(why(parts(3), wgmma, nine_blocks), ContainsSubstring("has a k-block"));
  CHECK_THAT(why(four([](KernelConfig& c) { c.ping_pong = true; }), wgmma), ContainsSubstring("cooperative"));
  CHECK_THAT(why(four([](KernelConfig& c) { c.block_n = 72; }), wgmma), ContainsSubstring("multiple of 8 columns"));
  CHECK_THAT(why(four([](KernelConfig& c) { c.block_n = 256, c.stages = 2; }), wgmma),
             ContainsSubstring("fit into the stages"));
  CHECK_THAT(why(four([](KernelConfig&) {}), wgmma, normalise({.m = 512, .n = 512, .k = 192})),
             ContainsSubstring("has a k-block"));
  CHECK(why(four([](KernelConfig&) {}), wgmma, normalise({.m = 512, .n = 512, .k = 200})) == "");
}

TEST_CASE("What only Hopper has is refused of the portable main loop", "[kernel_config]") {
  CHECK_THAT(why([](KernelConfig& c) { c.swap_ab = true; }), ContainsSubstring("swapped"));
  CHECK_THAT(why([](KernelConfig& c) { c.ping_pong = true; }), ContainsSubstring("ping-pong"));
  CHECK_THAT(why([](KernelConfig& c) { c.cluster_k = 2; }), ContainsSubstring("clusters"));
}

TEST_CASE("D is stored by TMA in boxes as wide as divide a block's columns, not below 64 bytes", "[kernel_config]") {
  const auto box = [](int block_n, DataType d, bool swap_ab = false, int cluster_k = 1) {
    KernelConfig config = wgmma;
    config.block_n = block_n, config.swap_ab = swap_ab, config.cluster_k = cluster_k;
    const DataType in = is_fp8(d) ? d : f16;
    const NormalProblem problem = normalise({.m = 512, .n = 512, .k = 512, .a = {in}, .b = {in}, .d = {d}});
    const device::sm90::Geometry geometry =
        device::sm90::geometry(parameters_of(config, kernel_problem(problem, config)));
    return geometry.tma_store ? std::pair(geometry.d_box_bytes / int(size_of(d)), geometry.d_box_rows)
                              : std::pair(0, 0);
  };
  CHECK(box(128, f16) == std::pair(64, 64));
  CHECK(box(96, f16) == std::pair(32, 64));
  CHECK(box(16, f16) == std::pair(16, 64));
  CHECK(box(72, f16) == std::pair(64, 64));  // the other 8 columns are copied
  CHECK(box(72, f32) == std::pair(32, 64));
  CHECK(box(16, f32) == std::pair(16, 64));
  CHECK(box(128, f32, false, 4) == std::pair(32, 64));
  CHECK(box(128, f16, false, 8) == std::pair(16, 64));
  CHECK(box(24, e4m3).first == 0);  // rows of 24 bytes
  CHECK(box(128, f16, true) == std::pair(64, 64));
  CHECK(box(72, f16, true) == std::pair(64, 8));
  CHECK(box(72, e4m3, true) == std::pair(64, 72));
  CHECK(box(200, f32, true) == std::pair(32, 8));
}

TEST_CASE("The sm90 main loop needs sm_90a and rows of multiples of 16 bytes", "[kernel_config]") {
  const auto same = [](KernelConfig&) {};
  const auto swap = [](KernelConfig& c) { c.swap_ab = true; };
  CHECK_THAT(why(same, wgmma, square, device_info_for("sm_80")), ContainsSubstring("sm_90a"));
  CHECK_THAT(why(same, wgmma, square, device_info_for("sm_100a")), ContainsSubstring("sm_90a"));
  // By the caller's names, whichever operand the kernel has as its A.
  const NormalProblem a = normalise({.m = 64, .n = 64, .k = 65}), b = normalise({.m = 64, .n = 65, .k = 64});
  for (const KernelConfig& config : {wgmma, with(wgmma, swap)}) {
    CHECK_THAT(why(same, config, a), StartsWith("A is aligned to 2 bytes") && ContainsSubstring("pack it (pack=a)"));
    CHECK_THAT(why(same, config, b), StartsWith("B is aligned to 2 bytes") && ContainsSubstring("pack it (pack=b)"));
  }
  const NormalProblem groups = normalise(
      {.m = 64, .n = 64, .k = 68, .batch = 2, .b = {.layout = Layout::column_major}, .grouping = Grouping::offsets});
  CHECK_THAT(why([](KernelConfig& c) { c.schedule = Schedule::persistent; }, wgmma, groups),
             StartsWith("A is aligned to 8 bytes") && ContainsSubstring("align its pointer, leading dimension and") &&
                 !ContainsSubstring("pack it"));
}

TEST_CASE("Packing lifts what the sm90 main loop asks of operands, and is its alone", "[kernel_config]") {
  const auto pack = [](bool a, bool b) { return [=](KernelConfig& c) { c.pack_a = a, c.pack_b = b; }; };
  const NormalProblem unaligned = normalise({.m = 64, .n = 65, .k = 67});
  CHECK_THAT(why(pack(true, false), wgmma, unaligned), StartsWith("B is aligned to 2 bytes"));
  CHECK_THAT(why(pack(false, true), wgmma, unaligned), StartsWith("A is aligned to 2 bytes"));
  CHECK(why(pack(true, true), wgmma, unaligned) == "");
  CHECK(why(pack(true, true), wgmma) == "");  // without need
  CHECK_THAT(why(pack(true, true)), ContainsSubstring("sm80"));
  CHECK_THAT(why(pack(true, true), wgmma, unaligned, device_info_for("sm_100a")), ContainsSubstring("sm_90a"));

  KernelConfig words = wgmma;
  words.block_k = 32;
  const NormalProblem rows = normalise({.m = 64, .n = 64, .k = 64, .a = {tf32}, .b = {tf32}, .d = {f32}});
  CHECK_THAT(why(pack(false, false), words, rows), ContainsSubstring("K-major"));
  CHECK(why(pack(false, true), words, rows) == "");
}

TEST_CASE("Packed operands that outgrow their share of the workspace are multiplied in slabs, or not at all",
          "[kernel_config]") {
  const auto pack = [](KernelConfig& c) { c.pack_a = c.pack_b = true; };
  const auto pack_and_split = [](KernelConfig& c) {
    c.pack_a = c.pack_b = true, c.schedule = Schedule::split_k, c.splits = 2;
  };
  const NormalProblem fits = normalise({.m = 4095, .n = 4095, .k = 4095}),
                      large = normalise({.m = 4097, .n = 4097, .k = 4097});
  CHECK(why(pack, wgmma, fits) == "");
  CHECK(why(pack_and_split, wgmma, fits) == "");
  CHECK(why(pack, wgmma, large) == "");
  CHECK_THAT(why(pack_and_split, wgmma, large), ContainsSubstring("without cutting"));
  CHECK_THAT(why(pack, wgmma, normalise({.m = 1 << 18, .n = 1, .k = (std::int64_t(1) << 31) - 1})),
             ContainsSubstring("of a tile"));
  const NormalProblem shared =
      normalise({.m = 999, .n = 999, .k = 999, .batch = 1000, .a = {.stride = 0}, .b = {.stride = 0}});
  CHECK(why(pack, wgmma, shared) == "");  // one A and one B
}

TEST_CASE("A grid of zero splits nothing and needs no counters", "[kernel_config]") {
  const NormalProblem many_tiles = normalise({.m = 1 << 20, .n = 1 << 20, .k = 64});
  CHECK(why([](KernelConfig& c) { c.schedule = Schedule::stream_k; }, {}, many_tiles) == "");
  CHECK(why([](KernelConfig& c) { c.schedule = Schedule::stream_k, c.grid = 132; }, {}, many_tiles) != "");
}
