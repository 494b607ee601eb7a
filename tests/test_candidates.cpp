#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>

#include "catch.hpp"
#include "core/enumerators.hpp"
#include "core/problem.hpp"
#include "jit/source_generator.hpp"
#include "kernels/family.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/legality.hpp"
#include "plan/candidates.hpp"
#include "plan/family.hpp"
#include "plan/sm80/candidates.hpp"
#include "random.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr std::array architectures{"sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"};

bool has_tile(const std::vector<KernelConfig>& configs, int block_m, int block_n, int block_k, int stages, int warps) {
  return std::any_of(configs.begin(), configs.end(), [&](const KernelConfig& c) {
    return c.main_loop == MainLoop::sm80 && c.block_m == block_m && c.block_n == block_n && c.block_k == block_k &&
           c.stages == stages && c.warps == warps && c.group_m == 8;
  });
}

}  // namespace

TEST_CASE("Each family of kernels has a row to choose by, and the last one computes everything", "[candidates]") {
  CHECK(kernel_families.size() == enumerators<MainLoop>().size());
  CHECK(plan_families.size() == kernel_families.size());
  for (const auto& [main_loop, name] : enumerators<MainLoop>()) {
    CAPTURE(name);
    CHECK(family_of(main_loop).main_loop == main_loop);
    CHECK(plan_family_of(main_loop).main_loop == main_loop);
    CHECK((plan_family_of(main_loop).typical == nullptr) == family_of(main_loop).portable);
  }
  CHECK(plan_families.back()->typical == nullptr);
}

TEST_CASE("Every default tile is legal on its device", "[candidates]") {
  const NormalProblem problem = normalise({.m = 4096, .n = 4096, .k = 4096});
  for (const char* architecture : architectures) {
    const DeviceInfo device = device_info_for(architecture);
    const std::vector<KernelConfig> tiles = portable_tiles(device);
    CAPTURE(architecture);
    CHECK(tiles.size() >= 15);
    for (const KernelConfig& tile : tiles) {
      CAPTURE(to_string(tile));
      CHECK(why_illegal(tile, problem, device).empty());
      CHECK(tile.schedule == Schedule::data_parallel);
      CHECK((tile.main_loop == MainLoop::sm80 || device.has_wgmma()));
    }
  }
}

TEST_CASE("The tutorial's eight fp16 tiles are candidates wherever shared memory holds them", "[candidates]") {
  for (const char* architecture : architectures) {
    const DeviceInfo device = device_info_for(architecture);
    const std::vector<KernelConfig> tiles = portable_tiles(device);
    CAPTURE(architecture);
    CHECK(has_tile(tiles, 128, 256, 64, 3, 8) == (device.smem_per_block > 144 * 1024));
    CHECK(has_tile(tiles, 64, 256, 32, 4, 4));
    CHECK(has_tile(tiles, 128, 128, 32, 4, 4));
    CHECK(has_tile(tiles, 128, 64, 32, 4, 4));
    CHECK(has_tile(tiles, 64, 128, 32, 4, 4));
    CHECK(has_tile(tiles, 128, 32, 32, 4, 4));
    CHECK(has_tile(tiles, 64, 32, 32, 5, 2));
    CHECK(has_tile(tiles, 32, 64, 32, 5, 2));
  }
}

TEST_CASE("Candidates are legal, differ, and do what they say", "[candidates]") {
  Random random(test_seed());
  CAPTURE(test_seed());
  for (int trial = 0; trial < 200; ++trial) {
    const DeviceInfo device = device_info_for(random.pick(architectures));
    const NormalProblem problem =
        normalise({.m = random.log_between(1, 20000),
                   .n = random.log_between(1, 20000),
                   .k = random.log_between(1, 40000),
                   .a = {.layout = random.between(0, 1) ? Layout::row_major : Layout::column_major},
                   .b = {.layout = random.between(0, 1) ? Layout::row_major : Layout::column_major}});
    const std::vector<KernelConfig> configs = candidates(problem, device);
    CAPTURE(to_string(problem), device.name);
    REQUIRE(!configs.empty());
    CHECK(configs.size() < 4000);
    std::set<std::string> texts;
    for (const KernelConfig& config : configs) {
      texts.insert(to_string(config));
      const std::string why = why_illegal(config, problem, device);
      if (!why.empty()) FAIL_CHECK(to_string(config) << ": " << why);
      const LaunchShape shape = launch_shape(problem, config);
      const bool cuts = config.schedule != Schedule::data_parallel && config.schedule != Schedule::persistent;
      if (cuts != (shape.partial_bytes > 0)) FAIL_CHECK(to_string(config) << " cuts tiles, or does not");
      const int steps_per_split = shape.decomposition.k_blocks / std::max(1, config.splits);
      if (config.splits > 1 && steps_per_split < 4) FAIL_CHECK(to_string(config) << " cuts too small");
    }
    CHECK(texts.size() == configs.size());
  }
}

TEST_CASE("Hopper tiles pack the operands that need it, and no others", "[candidates]") {
  const DeviceInfo device = device_info_for("sm_90a");
  /// Of all Hopper candidates: "" for none, else "-", "a", "b" or "ab".
  const auto packed = [&](const Problem& problem) {
    std::set<std::string> kinds;
    for (const KernelConfig& c : candidates(normalise(problem), device)) {
      const std::string kind = std::string(c.pack_a ? "a" : "") + (c.pack_b ? "b" : "");
      if (c.main_loop == MainLoop::sm90) kinds.insert(kind.empty() ? "-" : kind);
      if (c.main_loop == MainLoop::sm80) CHECK(kind.empty());
    }
    CHECK(kinds.size() <= 1);
    return kinds.empty() ? std::string() : *kinds.begin();
  };
  constexpr Layout columns = Layout::column_major;
  CHECK(packed({.m = 1024, .n = 1024, .k = 1024}) == "-");
  CHECK(packed({.m = 1024, .n = 1024, .k = 1023}) == "a");
  CHECK(packed({.m = 1024, .n = 1023, .k = 1024}) == "b");
  CHECK(packed({.m = 1024, .n = 1024, .k = 1024, .b = {.alignment = 8}}) == "b");
  CHECK(packed({.m = 1024, .n = 1024, .k = 1023, .b = {.layout = columns}}) == "ab");
  CHECK(packed({.m = 1024, .n = 1024, .k = 1024, .a = {tf32}, .b = {tf32}, .d = {f32}}) == "b");
  CHECK(packed({.m = 1024, .n = 1024, .k = 1024, .a = {.type = e4m3, .layout = columns}, .b = {e5m2}}) == "ab");
  CHECK(packed({.m = 1024, .n = 1024, .k = 1024, .a = {s8}, .b = {.type = s8, .layout = columns}, .d = {s32}}) == "-");
  CHECK(packed({.m = 8191, .n = 8191, .k = 8191}) == "ab");  // in slabs
  CHECK(packed({.m = 1024, .n = 1024, .k = 1023, .a = {f64}, .b = {f64}, .d = {f64}}) == "");
}

TEST_CASE("Large problems have Hopper tiles that leave little of the last wave idle", "[candidates]") {
  struct Case {
    NormalProblem problem;
    double products;  // of the CTA with most tiles, over an even share
  };
  const NormalProblem square = normalise({.m = 8192, .n = 8192, .k = 8192});
  const NormalProblem rows_of_b = normalise({.m = 8192, .n = 8192, .k = 8192, .b = {.layout = Layout::column_major}});
  const NormalProblem ragged = normalise({.m = 7552, .n = 2256, .k = 5328});
  const DeviceInfo device = device_info_for("sm_90a");
  for (const auto& [problem, products] : {Case{square, 1.01}, Case{rows_of_b, 1.01}, Case{ragged, 1.04}}) {
    double least = 2;
    for (const KernelConfig& c : candidates(problem, device)) {
      if (c.main_loop != MainLoop::sm90 || c.schedule != Schedule::persistent) continue;
      const device::Decomposition work = launch_shape(problem, c).decomposition;
      const double tiles = std::ceil(double(device::tile_count(work)) / work.ctas);
      least = std::min(least, tiles * c.block_m * c.block_n * 132 / double(problem.m * problem.n));
    }
    CAPTURE(to_string(problem), least);
    CHECK(least >= 1);
    CHECK(least < products);
  }
}

TEST_CASE("A kernel whose launch chooses the cluster is one text, and has a refit for each that shares whole parts",
          "[candidates]") {
  const DeviceInfo device = device_info_for("sm_90a");
  const NormalProblem problem =
      normalise({.m = 4096, .n = 4096, .k = 1024, .b = {.layout = Layout::column_major}, .d = {f32}});
  const auto clusters_of = [&](int block_n, int cluster_k) {
    const KernelConfig kernel{.main_loop = MainLoop::sm90,
                              .block_m = 64,
                              .block_n = block_n,
                              .block_k = 64,
                              .stages = 4,
                              .warps = 4,
                              .cluster_k = cluster_k,
                              .cluster_at_launch = true};
    std::set<std::string> clusters, texts;
    for (const KernelConfig& config : refits(kernel, problem, device)) {
      CHECK((config.cluster_at_launch && config.cluster_k == cluster_k));
      CHECK(compiled_part(config) == compiled_part(kernel));
      clusters.insert(std::to_string(config.cluster_m) + "x" + std::to_string(config.cluster_n));
      texts.insert(generate(problem, config, device).text);
    }
    CHECK(texts.size() == 1);
    KernelConfig fixed = kernel;
    fixed.cluster_at_launch = false;
    CHECK(!texts.contains(generate(problem, fixed, device).text));
    return clusters;
  };
  CHECK(clusters_of(64, 1) == std::set<std::string>{"1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "4x2", "2x4"});
  CHECK(clusters_of(48, 1) == std::set<std::string>{"1x1", "2x1", "1x2", "2x2", "1x4", "2x4"});
  CHECK(clusters_of(40, 1) == std::set<std::string>{"1x1", "1x2", "1x4"});
  CHECK(clusters_of(64, 2) == std::set<std::string>{"1x1", "2x1", "1x2", "2x2", "4x1", "1x4"});
}

TEST_CASE("A persistent kernel serves in a grid, of few stages, too", "[candidates]") {
  const DeviceInfo device = device_info_for("sm_90a");
  const NormalProblem problem = normalise({.m = 8192, .n = 8192, .k = 512});
  for (const int stages : {2, 3, 5}) {
    const KernelConfig kernel{.main_loop = MainLoop::sm90,
                              .block_m = 128,
                              .block_n = 128,
                              .block_k = 64,
                              .stages = stages,
                              .warps = 8,
                              .schedule = Schedule::persistent};
    CAPTURE(stages);
    CHECK(std::ranges::any_of(refits(kernel, problem, device),
                              [&](const KernelConfig& c) { return c.grid == device.sm_count && c.stages == stages; }));
  }
}

TEST_CASE("A problem without work has a candidate all the same", "[candidates]") {
  for (const Problem& problem :
       {Problem{.m = 0, .n = 5, .k = 5}, Problem{.m = 5, .n = 0, .k = 5}, Problem{.m = 5, .n = 5, .k = 0},
        Problem{.m = 100, .n = 100, .k = 6400, .alpha = 0}, Problem{}}) {
    const std::vector<KernelConfig> configs = candidates(normalise(problem), device_info_for("sm_90a"));
    CAPTURE(to_string(problem));
    REQUIRE(!configs.empty());
    for (const KernelConfig& config : configs) CHECK(config.schedule == Schedule::data_parallel);
  }
}
