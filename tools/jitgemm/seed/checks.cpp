#include <fmt/core.h>

#include <cmath>
#include <vector>

#include "common/text.hpp"
#include "core/element.hpp"
#include "measure/reference.hpp"
#include "seed/bench.hpp"

namespace jitgemm::cli {
namespace {

std::vector<double> values(SeedBench& bench, const void* d) {
  const Problem& p = bench.problem();
  std::vector<std::byte> bytes(std::size_t(p.m * p.n) * size_of(p.d.type));
  bench.backend().copy_to_host(bytes.data(), d, bytes.size());
  std::vector<double> values(std::size_t(p.m * p.n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load_element(bytes.data(), std::int64_t(i), p.d.type);
  return values;
}

std::vector<double> exact(SeedBench& bench) {
  const Problem& p = bench.problem();
  Reference reference(bench.backend(), normalise(p), bench.operands());
  std::vector<std::int64_t> rows, columns;
  for (std::int64_t i = 0; i < p.m; ++i) rows.push_back(i);
  for (std::int64_t j = 0; j < p.n; ++j) columns.push_back(j);
  reference.fetch(0, rows, columns);
  std::vector<double> values;
  for (std::int64_t i : rows) {
    for (std::int64_t j : columns) values.push_back(reference.at(0, i, j).value);
  }
  return values;
}

double rounded_to(DataType type, double x) {
  double element;
  store_element(x, &element, 0, type);
  return load_element(&element, 0, type);
}

struct Difference {
  double largest = 0;
  std::int64_t outside = 0;  ///< elements that are too far off
};

/// |x - y| against atol, as torch.allclose with rtol = 0.
Difference allclose(const std::vector<double>& x, const std::vector<double>& y, double atol) {
  Difference difference;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double off = std::isnan(x[i]) ? HUGE_VAL : std::abs(x[i] - y[i]);
    difference.largest = std::max(difference.largest, off);
    difference.outside += !(off <= atol);
  }
  return difference;
}

/// The same of an f16 x, which may be the rounding of anything within atol of y.
Difference allclose_rounded(const std::vector<double>& x, const std::vector<double>& y, double atol) {
  Difference difference;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double off = std::isnan(x[i]) ? HUGE_VAL : std::abs(x[i] - y[i]);
    difference.largest = std::max(difference.largest, off);
    difference.outside += !(rounded_to(f16, y[i] - atol) <= x[i] && x[i] <= rounded_to(f16, y[i] + atol));
  }
  return difference;
}

void poison(SeedBench& bench, void* d, std::size_t bytes) {
  const std::vector<std::byte> nan(bytes, std::byte{0xff});
  bench.backend().copy_to_device(d, nan.data(), nan.size());
}

struct Checks {
  nlohmann::ordered_json json;
  bool passed = true;

  void add(const std::string& name, const Difference& difference, double atol, bool counts) {
    const bool match = difference.outside == 0;
    fmt::print("  {:<58} {}: largest difference {:.3g}{}\n", name, match ? "match" : "differ", difference.largest,
               match ? "" : fmt::format(", {} elements beyond {}", difference.outside, atol));
    json.push_back({{"check", name},
                    {"match", match},
                    {"atol", atol},
                    {"largest", difference.largest},
                    {"outside", difference.outside},
                    {"counts", counts}});
    if (counts) passed = passed && match;
  }
};

/// One type. f32 shows the error of the product alone; an f16 D of this size is up to 0.03 off by rounding alone, which
/// torch.allclose of two f16 results does not see as long as both round alike.
bool check_type(SeedBench& bench, const std::string& type, std::int64_t size, nlohmann::ordered_json& json) {
  Problem p{.m = size, .n = size, .k = size};
  p.a.type = p.b.type = *parse_data_type(type);
  if (size_of(p.a.type) == 1) p.b.layout = Layout::column_major;  // the tutorial's b.T
  const double atol = size_of(p.a.type) == 1 ? 0.125 : 1e-2;
  fmt::print("{}, {} x {} x {}{}, within {}\n", type, size, size, size,
             p.b.layout == Layout::column_major ? ", B pre-transposed" : "", atol);
  Checks checks;
  std::string config;
  for (const DataType d : {f32, f16}) {
    p.d.type = d;
    bench.begin(p);
    const Operands operands = bench.operands();
    const KernelConfig choice = bench.choice();
    config = to_string(choice);
    const std::size_t bytes = std::size_t(size * size) * size_of(d);
    poison(bench, operands.d, bytes);
    bench.run(choice, operands);
    const std::vector<double> ours = values(bench, operands.d), expected = exact(bench);
    if (d == f32) {
      checks.add("before rounding (D in f32) and float64", allclose(ours, expected, atol), atol, true);
      continue;
    }
    checks.add("D in f16 and float64, rounding allowed for", allclose_rounded(ours, expected, atol), atol, true);
    poison(bench, operands.d, bytes);
    if (bench.run_cublas(operands)) {
      checks.add("D in f16 and cuBLAS's (torch.allclose; for information)",
                 allclose(ours, values(bench, operands.d), atol), atol, false);
    }
  }
  json.push_back({{"type", type}, {"size", size}, {"atol", atol}, {"config", config}, {"checks", checks.json}});
  return checks.passed;
}

}  // namespace

void seed_checks(const SeedOptions& options) {
  SeedOptions untuned = options;
  untuned.frozen = true;  // an earlier result or the cost model's choice: nothing is timed here
  SeedBench bench(untuned);
  bench.print_description();
  std::vector<std::int64_t> sizes = options.sizes;
  if (sizes.empty()) sizes = {bench.emulated() ? 96 : 512};
  nlohmann::ordered_json json = bench.description();
  bool passed = true;
  for (const std::string& type : options.types) {
    for (std::int64_t size : sizes) passed = check_type(bench, type, size, json["results"]) && passed;
  }
  if (!options.json.empty()) write_file(options.json, json_text(json));
  if (!passed) throw Error(ErrorCode::internal, "D is wrong: please report the output above");
}

}  // namespace jitgemm::cli
