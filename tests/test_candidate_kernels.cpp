#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "nvrtc.hpp"
#include "plan/sm80/candidates.hpp"

namespace jitgemm {
using test::no_nvrtc;
using test::nvrtc_for;

namespace {

constexpr Schedule partitions[] = {Schedule::data_parallel, Schedule::split_k, Schedule::stream_k};

struct Row {
  std::string architecture;
  KernelConfig config;
  int registers = 0, spill_bytes = 0;
  std::string error;
};

/// But bf16, whose kernels are f16's.
std::vector<DataType> input_types() {
  std::vector<DataType> types;
  for (const DataTypeInfo& info : data_types())
    if (!info.partners.empty() && info.type != bf16) types.push_back(info.type);
  return types;
}

/// With operands of full alignment.
NormalProblem typical(DataType a, Layout layout_b = Layout::row_major) {
  return normalise({.m = 4096,
                    .n = 4096,
                    .k = 4096,
                    .a = {a},
                    .b = {.type = a, .layout = layout_b},
                    .d = {is_fp8(a) ? f16 : default_output(a)}});
}

/// Compiles each tile for each way to cut it.
std::vector<Row> compile(const std::string& architecture, const std::vector<KernelConfig>& tiles,
                         const NormalProblem& problem, unsigned threads) {
  const DeviceInfo device = device_info_for(architecture);
  const auto backend = make_compile_only_backend(architecture);
  std::vector<Row> rows;
  for (KernelConfig config : tiles)
    for (const Schedule schedule : partitions) {
      config.schedule = schedule;
      rows.push_back({architecture, config, 0, 0, why_illegal(config, problem, device)});
    }

  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < rows.size();) {
      if (!rows[i].error.empty()) continue;
      try {
        const KernelBinary binary = backend->compile(generate(problem, rows[i].config, device));
        rows[i].registers = binary.registers;
        rows[i].spill_bytes = binary.spill_bytes;
      } catch (const Error& error) {
        rows[i].error = std::string(error.what()) + "\n" + error.log();
      }
    }
  };
  std::vector<std::jthread> pool;
  for (unsigned i = 0; i < threads; ++i) pool.emplace_back(work);
  pool.clear();
  return rows;
}

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    INFO(row.architecture << " " << to_string(row.config));
    CHECK(row.error == "");
    CHECK(row.registers > 0);
    CHECK(row.spill_bytes == 0);
  }
}

}  // namespace

TEST_CASE("The seeds' largest tiles and the Hopper tiles compile with NVRTC and spill nothing", "[candidates][nvrtc]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  std::vector<KernelConfig> tiles;
  for (const KernelConfig& tile : portable_tiles(device_info_for("sm_90a")))
    if (tile.main_loop == MainLoop::sm90 || tile.block_m * tile.block_n / tile.warps == 128 * 32) tiles.push_back(tile);
  REQUIRE(tiles.size() >= 4);
  check(compile("sm_90a", tiles, typical(f16), 2));
}

TEST_CASE("Every type's largest tiles compile with NVRTC and spill nothing", "[candidates][nvrtc]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  for (DataType type : input_types())
    for (Layout layout_b : {Layout::row_major, Layout::column_major}) {
      const NormalProblem problem = typical(type, layout_b);
      std::vector<KernelConfig> tiles;
      for (const KernelConfig& tile : portable_tiles(device_info_for("sm_90a"), type)) {
        if (tile.main_loop == MainLoop::sm80 && why_illegal(tile, problem, device_info_for("sm_90a")).empty())
          tiles.push_back(tile);
      }
      REQUIRE(tiles.size() >= 4);
      tiles.resize(1);  // the list begins with large ones
      check(compile("sm_90a", tiles, problem, 2));
    }
}

TEST_CASE("The portable tiles of f16 compile with NVRTC for an A100, split or not, and spill nothing",
          "[candidates][nvrtc]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  const DeviceInfo device = device_info_for("sm_80");
  std::vector<KernelConfig> tiles;
  for (const KernelConfig& tile : portable_tiles(device))
    if (why_illegal(tile, typical(f16), device).empty()) tiles.push_back(tile);
  REQUIRE(tiles.size() >= 20);
  check(compile("sm_80", tiles, typical(f16), 2));
}

TEST_CASE("Every default candidate compiles with NVRTC for its architectures and spills nothing",
          "[.full][candidates][nvrtc]") {
  if (!nvrtc_for()) SKIP(no_nvrtc);
  const char* path = std::getenv("JITGEMM_TEST_TABLE");  // a Markdown table of registers goes there
  std::ofstream table(path ? path : "/dev/null");
  table << "| architecture | operands | tile | stages | warps | whole tiles | split-K | stream-K | spills, bytes "
           "|\n|---|---|---|---|---|---|---|---|---|\n";
  for (const char* architecture : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"})
    for (DataType type : input_types())
      for (Layout layout_b : {Layout::row_major, Layout::column_major}) {
        const DeviceInfo device = device_info_for(architecture);
        const NormalProblem problem = typical(type, layout_b);
        std::vector<KernelConfig> tiles;
        for (const KernelConfig& tile : portable_tiles(device, type)) {
          if (why_illegal(tile, problem, device).empty()) tiles.push_back(tile);
        }
        const auto rows = compile(architecture, tiles, problem, std::thread::hardware_concurrency());
        check(rows);
        for (std::size_t i = 0; i + 2 < rows.size(); i += 3) {
          const KernelConfig& c = rows[i].config;
          table << "| " << architecture << " | " << to_string(type) << (layout_b == Layout::row_major ? " nn" : " nt")
                << " | " << to_string(c.main_loop) << " " << c.block_m << "x" << c.block_n << "x" << c.block_k << " | "
                << c.stages << " | " << c.warps;
          int spills = 0;
          for (std::size_t j = i; j < i + 3; ++j) {
            table << " | " << rows[j].registers;
            spills += rows[j].spill_bytes;
          }
          table << " | " << spills << " |\n";
        }
      }
}

}  // namespace jitgemm
