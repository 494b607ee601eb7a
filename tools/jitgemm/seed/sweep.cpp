#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <fstream>
#include <random>

#include "backend/backend.hpp"
#include "common/progress.hpp"
#include "common/text.hpp"
#include "core/element.hpp"
#include "measure/check.hpp"
#include "seed/bench.hpp"

namespace jitgemm::cli {
namespace {

constexpr double most_disc = 5;  ///< the notebook's, to catch bugs
constexpr int rows_compared = 8;

struct Measure {
  bool two_tiles;
  int grid;
  double disc = 0;
  ArmResult result = {};
};

/// Ten of the even numbers below `end`, without repetition, the same for the same shape.
std::vector<int> random_even(int end, const Shape& shape) {
  std::vector<int> even;
  for (int grid = 2; grid < end; grid += 2) even.push_back(grid);
  std::seed_seq seed{std::int64_t(2024), shape.m, shape.n, shape.k};
  std::mt19937 random(seed);
  std::shuffle(even.begin(), even.end(), random);
  even.resize(std::min<std::size_t>(even.size(), 10));
  return even;
}

std::deque<Measure> measures(const Shape& shape, int sms, const KernelConfig& tile) {
  const auto blocks = [](std::int64_t size, int block) { return (size + block - 1) / block; };
  const std::int64_t tiles = blocks(shape.m, tile.block_m) * blocks(shape.n, tile.block_n);
  std::vector<int> grids{sms, 2 * sms};
  if (tiles < 2 * sms) grids.push_back(int(tiles));
  for (int grid : random_even(2 * sms, shape)) grids.push_back(grid);
  std::deque<Measure> all;
  for (bool two_tiles : {true, false}) {
    for (int grid : grids) all.push_back({two_tiles, grid});
  }
  return all;
}

/// The largest difference of some rows of two D's. NaN anywhere is infinite.
double discrepancy(SeedBench& bench, const void* d, const void* expected) {
  const Problem& p = bench.problem();
  const std::size_t bytes = std::size_t(p.n) * size_of(p.d.type);
  std::vector<std::byte> x(bytes), y(bytes);
  double most = 0;
  for (int i = 0; i < rows_compared; ++i) {
    const std::int64_t row = (p.m - 1) * i / (rows_compared - 1);
    const std::size_t offset = std::size_t(row * p.d.ld) * size_of(p.d.type);
    bench.backend().copy_to_host(x.data(), static_cast<const std::byte*>(d) + offset, bytes);
    bench.backend().copy_to_host(y.data(), static_cast<const std::byte*>(expected) + offset, bytes);
    for (std::int64_t j = 0; j < p.n; ++j) {
      const double off = std::abs(load_element(x.data(), j, p.d.type) - load_element(y.data(), j, p.d.type));
      most = std::max(most, std::isnan(off) ? HUGE_VAL : off);
    }
  }
  return most;
}

nlohmann::ordered_json sweep_one(SeedBench& bench, const SeedOptions& options, const Shape& shape) {
  bench.begin({.m = shape.m, .n = shape.n, .k = shape.k});
  const bool emulated = bench.emulated();
  const auto config_of = [&](const Measure& measure) {
    return notebook_config(options, emulated, measure.grid, measure.two_tiles);
  };
  std::deque<Measure> all = measures(shape, bench.sm_count(), notebook_config(options, emulated, 0, false));

  // What is expected: cuBLAS's D; on the emulator, and without cuBLAS, that of whole tiles. Checked against float64.
  const Operands operands = bench.operands();
  Operands expected = operands;
  const DeviceMemory expected_d(bench.backend(), std::max<std::size_t>(bytes_of_d(bench.problem()), 256));
  expected.d = expected_d.data();
  if (!bench.run_cublas(expected)) bench.run(notebook_config(options, emulated, 0, false), expected);
  const Check check = check_against_reference(bench.backend(), bench.problem(), expected, 1 << 14);
  if (!check.passed()) {
    throw Error(ErrorCode::internal, fmt::format("{}: what was expected is wrong itself: D({}, {}) is {}, not {}",
                                                 to_string(bench.problem()), check.worst.row, check.worst.column,
                                                 check.got, check.expected));
  }
  ArmResult cublas, choice;
  for (Measure& measure : all) {
    poison(bench.backend(), bench.problem(), operands);
    bench.run(config_of(measure), operands);
    measure.disc = discrepancy(bench, operands.d, expected.d);
    if (measure.disc > most_disc) {
      throw Error(ErrorCode::internal,
                  fmt::format("problem size: {}x{}x{} - max discrepancy: {} - sm: {}, 2 tiles: {}", shape.m, shape.n,
                              shape.k, measure.disc, measure.grid, measure.two_tiles));
    }
    bench.add_ours(measure.result, config_of(measure));
  }
  if (options.tuned) bench.add_ours(choice, bench.choice());
  bench.add_cublas(cublas);
  bench.time({.rounds = 3, .round_ms = 0.5, .min_launches = 1, .max_launches = 100});

  nlohmann::ordered_json json{{"m", shape.m}, {"n", shape.n}, {"k", shape.k}};
  double best = HUGE_VAL;
  for (const Measure& measure : all) {
    json["jitgemm"].push_back({{"2 tiles", measure.two_tiles},
                               {"sm", measure.grid},
                               {"disc", measure.disc},
                               {"jitgemm_ms", ms_json(measure.result.us)}});
    if (measure.result.timed()) best = std::min(best, measure.result.us);
  }
  if (options.tuned) json["choice"] = {{"config", choice.config}, {"jitgemm_ms", ms_json(choice.us)}};
  json["cublas_ms"] = ms_json(cublas.us);
  json["speedup"] = nullptr;
  if (cublas.timed()) json["speedup"] = cublas.us / best;
  return json;
}

/// What an earlier run left, if this one goes on from there.
nlohmann::ordered_json earlier_results(const SeedOptions& options) {
  std::ifstream file(options.json);
  if (!options.resume || !file) return nlohmann::ordered_json::array();
  try {
    return nlohmann::ordered_json::parse(file).at("results");
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::io, options.json + " is no result of this command: remove it, or name another --json file");
  }
}

double speedup_of(const nlohmann::ordered_json& result) {
  return result.at("speedup").is_null() ? 0 : double(result.at("speedup"));
}

/// The notebook's line.
void print_average(const nlohmann::ordered_json& results, std::size_t total) {
  double sum = 0;
  for (const nlohmann::ordered_json& result : results) sum += speedup_of(result);
  fmt::print("{}/{}{}\n", results.size(), total,
             sum > 0 ? fmt::format(" - average speedup: {:.3f}", sum / double(results.size())) : " - right");
  std::fflush(stdout);
}

}  // namespace

void seed_sweep(const SeedOptions& options) {
  if (options.resume && options.json.empty()) {
    throw Error(ErrorCode::invalid_option, "--resume goes on from a JSON file: add --json");
  }
  std::vector<Shape> shapes = read_shapes(options.shapes);
  if (options.first > 0) shapes.resize(std::min(shapes.size(), std::size_t(options.first)));
  SeedBench bench(options);
  bench.print_description();
  if (bench.emulated()) {
    for (Shape& shape : shapes) {  // so that there are still several tiles
      for (std::int64_t* size : {&shape.m, &shape.n, &shape.k}) *size = std::max<std::int64_t>(*size / 64, 8);
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  nlohmann::ordered_json results = earlier_results(options);
  const auto write = [&] {
    nlohmann::ordered_json sorted = results;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& x, const auto& y) { return speedup_of(x) < speedup_of(y); });
    nlohmann::ordered_json json = bench.description();
    json["shapes"] = shapes.size();
    json["results"] = std::move(sorted);
    if (!options.json.empty()) write_file(options.json, json_text(json));
  };
  bool out_of_time = false;
  Progress progress("seed sweep");
  for (const Shape& shape : shapes) {
    const auto same = [&](const auto& r) { return r["m"] == shape.m && r["n"] == shape.n && r["k"] == shape.k; };
    if (std::any_of(results.begin(), results.end(), same)) continue;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    if ((out_of_time = options.seconds > 0 && elapsed.count() > options.seconds)) break;
    progress.update(int(results.size()), int(shapes.size()), fmt::format("{}x{}x{}", shape.m, shape.n, shape.k));
    results.push_back(sweep_one(bench, options, shape));
    if (results.size() % 10 != 0) continue;
    progress.hide();
    print_average(results, shapes.size());
    write();
  }
  progress.hide();
  write();
  print_average(results, shapes.size());
  if (out_of_time)
    fmt::print("stopped after --seconds{}\n", options.json.empty() ? "" : "; --resume goes on from here");
}

}  // namespace jitgemm::cli
