#include <array>
#include <string>

#include "catch.hpp"
#include "core/device_info.hpp"
#include "core/kernel_config.hpp"
#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "random.hpp"

using namespace jitgemm;
using Catch::Matchers::ContainsSubstring;
using jitgemm::test::Random;

namespace {

std::string refusal(std::string_view text) {
  try {
    return "read as " + to_string(parse_kernel_config(text));
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_config);
    return error.what();
  }
}

constexpr std::array schedules{Schedule::data_parallel, Schedule::persistent,        Schedule::split_k,
                               Schedule::stream_k,      Schedule::stream_k_one_tile, Schedule::stream_k_two_tile};

const Problem square = normalise({.m = 512, .n = 512, .k = 512});
const DeviceInfo hopper = device_info_for("sm_90a");

std::string why(auto change, KernelConfig config = {}, const Problem& problem = square,
                const DeviceInfo& device = hopper) {
  change(config);
  return why_illegal(config, problem, device);
}

const KernelConfig wgmma{
    .main_loop = MainLoop::sm90, .block_m = 128, .block_n = 128, .block_k = 64, .stages = 4, .warps = 8};

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
        "sm90 128x256x64 group_m=8 stages=4 warps=8 cluster=2x1 schedule=split_k splits=4");
  CHECK(to_string(KernelConfig{.group_m = 0, .schedule = Schedule::stream_k_two_tile, .grid = 132}) ==
        "sm80 128x128x32 group_m=0 stages=3 warps=4 schedule=stream_k_two_tile grid=132");
  CHECK(to_string(KernelConfig{.main_loop = MainLoop::sm90, .pack_a = true, .pack_b = true}) ==
        "sm90 128x128x32 group_m=8 stages=3 warps=4 pack=ab schedule=data_parallel");
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
                              .pack_a = random.between(0, 1) == 1,
                              .pack_b = random.between(0, 1) == 1,
                              .schedule = random.pick(schedules),
                              .splits = draw(64),
                              .grid = draw(70'000)};
    const KernelConfig again = parse_kernel_config(to_string(config));
    if (again != config) FAIL(to_string(config) << " reads back as " << to_string(again));
    if (hash_value(again) != hash_value(config)) FAIL("equal configurations hash differently");
  }
}

TEST_CASE("Fields may be left out, in any order, and mean their default", "[kernel_config]") {
  CHECK(parse_kernel_config("sm80") == KernelConfig{});
  CHECK(parse_kernel_config("64x256x32") == KernelConfig{.block_m = 64, .block_n = 256});
  CHECK(parse_kernel_config("  grid=7   schedule=stream_k sm90 ") ==
        KernelConfig{.main_loop = MainLoop::sm90, .schedule = Schedule::stream_k, .grid = 7});
  CHECK(
      parse_kernel_config("sm90 128x256x64 group_m=8 stages=4 warps=8 cluster=1x1 schedule=split_k splits=4 grid=0") ==
      KernelConfig{.main_loop = MainLoop::sm90,
                   .block_n = 256,
                   .block_k = 64,
                   .stages = 4,
                   .warps = 8,
                   .schedule = Schedule::split_k,
                   .splits = 4});
}

TEST_CASE("A configuration that cannot be read is refused by the word at fault", "[kernel_config]") {
  for (const char* word : {"sm70", "128x128", "128x128x32x4", "x128x32", "128x12ax32", "warps", "warps=", "warps=4.5",
                           "warps=99999999999", "=4", "block_m=128", "schedule=streamk", "cluster=2", "sm80,", "pack=", "pack=ba", "pack=c"}) {
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
  CHECK_THAT(why([](KernelConfig& c) { c.block_k = 32; }, wgmma), ContainsSubstring("block_k"));
  CHECK_THAT(why([](KernelConfig& c) { c.warps = 4; }, wgmma), ContainsSubstring("warpgroups"));
  CHECK_THAT(why([](KernelConfig& c) { c.block_n = 96; }, wgmma), ContainsSubstring("block_n"));
}

TEST_CASE("The sm90 main loop needs sm_90a and 16-byte rows", "[kernel_config]") {
  const auto same = [](KernelConfig&) {};
  CHECK_THAT(why(same, wgmma, square, device_info_for("sm_80")), ContainsSubstring("sm_90a"));
  CHECK_THAT(why(same, wgmma, square, device_info_for("sm_100a")), ContainsSubstring("sm_90a"));
  CHECK_THAT(why(same, wgmma, normalise({.m = 64, .n = 64, .k = 65})), ContainsSubstring("16-byte"));
}

TEST_CASE("Packing lifts what the sm90 main loop asks of operands, and is its alone", "[kernel_config]") {
  const auto pack = [](bool a, bool b) { return [=](KernelConfig& c) { c.pack_a = a, c.pack_b = b; }; };
  const Problem unaligned = normalise({.m = 64, .n = 65, .k = 67});
  CHECK_THAT(why(pack(true, false), wgmma, unaligned), ContainsSubstring("16-byte"));
  CHECK_THAT(why(pack(false, true), wgmma, unaligned), ContainsSubstring("16-byte"));
  CHECK(why(pack(true, true), wgmma, unaligned) == "");
  CHECK(why(pack(true, true), wgmma) == "");  // without need
  CHECK_THAT(why(pack(true, true)), ContainsSubstring("sm80"));
  CHECK_THAT(why(pack(true, true), wgmma, unaligned, device_info_for("sm_100a")), ContainsSubstring("sm_90a"));

  KernelConfig words = wgmma;
  words.block_k = 32;
  const Problem rows = normalise({.m = 64, .n = 64, .k = 64, .a = tf32, .b = tf32, .d = f32});
  CHECK_THAT(why(pack(false, false), words, rows), ContainsSubstring("K-major"));
  CHECK(why(pack(false, true), words, rows) == "");
}

TEST_CASE("Packed operands that outgrow their share of the workspace are multiplied in slabs, or not at all", "[kernel_config]") {
  const auto pack = [](KernelConfig& c) { c.pack_a = c.pack_b = true; };
  const auto pack_and_split = [](KernelConfig& c) {
    c.pack_a = c.pack_b = true, c.schedule = Schedule::split_k, c.splits = 2;
  };
  const Problem fits = normalise({.m = 4095, .n = 4095, .k = 4095}), large = normalise({.m = 4097, .n = 4097, .k = 4097});
  CHECK(why(pack, wgmma, fits) == "");
  CHECK(why(pack_and_split, wgmma, fits) == "");
  CHECK(why(pack, wgmma, large) == "");
  CHECK_THAT(why(pack_and_split, wgmma, large), ContainsSubstring("without cutting"));
  const std::int64_t most = (std::int64_t(1) << 31) - 1;
  CHECK_THAT(why(pack, wgmma, normalise({.m = most, .n = 1, .k = most - 1})), ContainsSubstring("of a tile"));
  const Problem shared = normalise({.m = 999, .n = 999, .k = 999, .batch = 1000, .stride_a = 0, .stride_b = 0});
  CHECK(why(pack, wgmma, shared) == "");  // one A and one B
}

TEST_CASE("A grid of zero splits nothing and needs no counters", "[kernel_config]") {
  const Problem many_tiles = normalise({.m = 1 << 20, .n = 1 << 20, .k = 64});
  CHECK(why([](KernelConfig& c) { c.schedule = Schedule::stream_k; }, {}, many_tiles) == "");
  CHECK(why([](KernelConfig& c) { c.schedule = Schedule::stream_k, c.grid = 132; }, {}, many_tiles) != "");
}
