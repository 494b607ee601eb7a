#include <fmt/core.h>

#include <deque>

#include "common/text.hpp"
#include "seed/bench.hpp"

namespace jitgemm::cli {
namespace {

struct Case {
  int grid;
  bool two_tiles;
  Plan plan = {};
  ArmResult result = {};
};

/// The notebook's three problems; on the emulator an eighth of them in M and N, and K shorter still.
std::vector<Shape> shapes(bool emulated) {
  if (emulated) return {{192, 224, 94}, {192, 224, 500}, {16, 16, 100}};
  return {{1536, 1792, 6016}, {1536, 1792, 32000}, {128, 128, 6400}};
}

/// What the notebook prints, under its names. first_wave and full_tiles, two kernels there, are one here.
nlohmann::ordered_json debug_fields(const Plan& plan) {
  const KernelConfig& c = plan.config;
  return {{"M", plan.problem.m},
          {"N", plan.problem.n},
          {"K", plan.problem.k},
          {"BLK_M", c.block_m},
          {"BLK_N", c.block_n},
          {"BLK_K", c.block_k},
          {"total_blocks_M", plan.tiles_m},
          {"total_blocks_N", plan.tiles_n},
          {"total_tiles", plan.tiles_m * plan.tiles_n},
          {"total_tiles_streamk", plan.stream_k_tiles},
          {"total_programs_streamk", c.grid},
          {"total_blocking_tiles", plan.data_parallel_tiles},
          {"iters_per_tile", plan.k_blocks_per_tile},
          {"total_iters_streamk", plan.stream_k_blocks},
          {"n_regs", plan.registers},
          {"n_spills", plan.spill_bytes}};
}

void print_debug(const Plan& plan) {
  const KernelConfig& c = plan.config;
  const int tiles = plan.tiles_m * plan.tiles_n;
  fmt::print("sizes: M = {}, N = {}, K = {}\n", plan.problem.m, plan.problem.n, plan.problem.k);
  fmt::print("blocks: BLK_M = {}, BLK_N = {}, BLK_K = {}\n", c.block_m, c.block_n, c.block_k);
  fmt::print("total blocks: {} x {} = {}\n", plan.tiles_m, plan.tiles_n, tiles);
  fmt::print("first_wave (Stream-K) tiles: {}\n", plan.stream_k_tiles);
  fmt::print("full_tiles (data-parallel) tiles: {}\n", plan.data_parallel_tiles);
  fmt::print("total tiles: {} + {} = {}\n", plan.stream_k_tiles, plan.data_parallel_tiles, tiles);
  fmt::print("total_programs_streamk={}\n", c.grid);
  fmt::print("total_blocking_tiles={}\n", plan.data_parallel_tiles);
  fmt::print("iters_per_tile={}\n", plan.k_blocks_per_tile);
  fmt::print("total_iters_streamk={}\n", plan.stream_k_blocks);
  if (plan.registers > 0) fmt::print("{} registers used, {} bytes of spills\n", plan.registers, plan.spill_bytes);
}

std::string title(const Case& c) {
  if (c.grid == 0) return "tiles only (grid=0)";
  return fmt::format("hybrid stream-k (grid={}, two_tiles={})", c.grid, c.two_tiles ? "True" : "False");
}

void print_result(const std::string& name, const ArmResult& result, const ArmResult& cublas) {
  if (!result.timed()) return fmt::print("{}: right\n", name);
  fmt::print("{}: {:.4f} ms{}\n", name, result.us / 1e3,
             cublas.timed() && &result != &cublas ? fmt::format(", speed-up: {:.2f}", cublas.us / result.us) : "");
}

nlohmann::ordered_json result_json(const ArmResult& result, const ArmResult& cublas) {
  nlohmann::ordered_json json{{"config", result.config}, {"jitgemm_ms", ms_json(result.us)}, {"speedup", nullptr}};
  if (result.timed() && cublas.timed()) json["speedup"] = cublas.us / result.us;
  return json;
}

nlohmann::ordered_json one(SeedBench& bench, const SeedOptions& options, const Shape& shape) {
  bench.begin({.m = shape.m, .n = shape.n, .k = shape.k});
  const int sms = bench.sm_count();
  std::deque<Case> cases{{sms, true}, {sms, false}, {2 * sms, true}, {2 * sms, false}, {0, false}};
  ArmResult cublas, choice;
  for (Case& c : cases) {
    const KernelConfig config = notebook_config(options, bench.emulated(), c.grid, c.two_tiles);
    c.plan = bench.compiled(config);
    bench.add_ours(c.result, config);
  }
  bench.add_ours(choice, bench.choice());
  const bool has_cublas = bench.add_cublas(cublas);
  bench.check();
  bench.time({.rounds = 11});

  fmt::print("\n== {} x {} x {}\n", shape.m, shape.n, shape.k);
  for (const Case& c : cases) {
    if (c.grid > 0) fmt::print("-- grid={}, two_tiles={}\n", c.grid, c.two_tiles ? "True" : "False");
    if (c.grid > 0) print_debug(c.plan);
  }
  fmt::print("--\n");
  if (has_cublas) print_result("cuBLAS", cublas, cublas);
  for (const Case& c : cases) print_result(title(c), c.result, cublas);
  print_result("our own choice (" + choice.config + ")", choice, cublas);
  std::fflush(stdout);

  nlohmann::ordered_json json{{"m", shape.m}, {"n", shape.n}, {"k", shape.k}, {"cublas_ms", ms_json(cublas.us)}};
  for (const Case& c : cases) {
    nlohmann::ordered_json entry{{"grid", c.grid}, {"2 tiles", c.two_tiles}};
    entry.update(result_json(c.result, cublas));
    entry["debug"] = debug_fields(c.plan);
    json["cases"].push_back(entry);
  }
  json["choice"] = result_json(choice, cublas);
  return json;
}

}  // namespace

void seed_singles(const SeedOptions& options) {
  SeedBench bench(options);
  bench.print_description();
  nlohmann::ordered_json json = bench.description();
  for (const Shape& shape : shapes(bench.emulated())) json["singles"].push_back(one(bench, options, shape));
  if (!options.json.empty()) write_file(options.json, json_text(json));
}

}  // namespace jitgemm::cli
