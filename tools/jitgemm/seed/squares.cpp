#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/progress.hpp"
#include "common/text.hpp"
#include "measure/speed.hpp"
#include "seed/bench.hpp"

namespace jitgemm::cli {
namespace {

struct Provider {
  const char* name;
  bool there = false;
  ArmResult result = {};
};

struct Row {
  Problem problem;
  Provider cublas{"cublas"}, ours{"jitgemm"}, triton{"triton"};

  std::array<const Provider*, 3> providers() const { return {&cublas, &ours, &triton}; }
};

std::vector<std::int64_t> sizes_of(const SeedOptions& options, bool emulated) {
  if (!options.sizes.empty()) return options.sizes;
  if (emulated) return {32, 48, 64};
  std::vector<std::int64_t> sizes;
  for (int i = 2; i <= 32; ++i) sizes.push_back(128 * i);
  return sizes;
}

Problem square(const SeedOptions& options, const std::string& type, std::int64_t size) {
  Problem p{.m = size, .n = size, .k = size};
  p.a.type = p.b.type = *parse_data_type(type);
  if (size_of(p.a.type) == 1) p.b.layout = Layout::column_major;  // the tutorial's b.T
  p.epilogue.activation = *parse_activation(options.activation);
  return p;
}

Row measured(SeedBench& bench, const Problem& problem) {
  bench.begin(problem);
  Row row{bench.problem()};
  row.ours.there = true;
  bench.add_ours(row.ours.result, bench.choice());
  row.cublas.there = bench.add_cublas(row.cublas.result);
  row.triton.there = bench.add_triton(row.triton.result);
  bench.check();
  bench.time({.rounds = 25, .round_ms = 1});
  return row;
}

/// The tutorial's table, of one type.
void print_head(const std::string& type) {
  fmt::print("\nmatmul-performance-{} (TFLOPS; median [20 %, 80 %])\n{:>6}", type, "M=N=K");
  for (const char* name : {"cuBLAS", "jitgemm", "Triton"}) fmt::print(" {:>24}", name);
  fmt::print("\n");
}

void print_row(const Row& row) {
  fmt::print("{:>6}", row.problem.m);
  for (const Provider* provider : row.providers()) {
    const ArmResult& r = provider->result;
    const auto perf = [&](double us) { return tflops(row.problem, us); };
    fmt::print(" {:>24}", !provider->there ? "-"
                          : r.timed()
                              ? fmt::format("{:.1f} [{:.1f}, {:.1f}]", perf(r.us), perf(r.p80_us), perf(r.p20_us))
                              : "right");
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void print_ratio(const std::vector<Row>& rows, Provider Row::* peer) {
  double logs = 0, least = HUGE_VAL;
  int count = 0;
  for (const Row& row : rows) {
    const ArmResult &ours = row.ours.result, &theirs = (row.*peer).result;
    if (!ours.timed() || !theirs.timed()) continue;
    logs += std::log(theirs.us / ours.us);
    least = std::min(least, theirs.us / ours.us);
    ++count;
  }
  if (count > 0) {
    fmt::print("{} time over ours: geometric mean {:.3f}, least {:.3f}\n", (rows.front().*peer).name,
               std::exp(logs / count), least);
  }
}

std::string csv_of(const std::vector<Row>& rows) {
  std::string csv = "type,activation,M,N,K,provider,ms,min_ms,max_ms,tflops,min_tflops,max_tflops,config\n";
  for (const Row& row : rows) {
    const Problem& p = row.problem;
    for (const Provider* provider : row.providers()) {
      if (!provider->there) continue;
      const ArmResult& r = provider->result;
      csv += fmt::format("{},{},{},{},{},{},", to_string(p.a.type), to_string(p.epilogue.activation), p.m, p.n, p.k,
                         provider->name);
      csv += r.timed() ? fmt::format("{:.6g},{:.6g},{:.6g},{:.5g},{:.5g},{:.5g}", r.us / 1e3, r.p20_us / 1e3,
                                     r.p80_us / 1e3, tflops(p, r.us), tflops(p, r.p80_us), tflops(p, r.p20_us))
                       : std::string(",,,,,");
      csv += fmt::format(",{}\n", r.config);
    }
  }
  return csv;
}

nlohmann::ordered_json json_of(const Row& row) {
  const Problem& p = row.problem;
  nlohmann::ordered_json json{{"type", to_string(p.a.type)},
                              {"activation", to_string(p.epilogue.activation)},
                              {"m", p.m},
                              {"n", p.n},
                              {"k", p.k}};
  for (const Provider* provider : row.providers()) {
    if (!provider->there) continue;
    const ArmResult& r = provider->result;
    nlohmann::ordered_json& arm = json[provider->name];
    arm = {{"config", r.config}, {"ms", ms_json(r.us)}, {"min_ms", ms_json(r.p20_us)}, {"max_ms", ms_json(r.p80_us)}};
    if (r.timed()) arm["tflops"] = tflops(p, r.us);
  }
  return json;
}

}  // namespace

void seed_squares(const SeedOptions& options) {
  SeedBench bench(options);
  bench.print_description();
  const std::vector<std::int64_t> sizes = sizes_of(options, bench.emulated());
  nlohmann::ordered_json json = bench.description();
  json["quantiles"] = {0.5, 0.2, 0.8};
  json["rows"] = nlohmann::ordered_json::array();
  std::vector<Row> all;
  for (const std::string& type : options.types) {
    print_head(type);
    std::vector<Row> rows;
    Progress progress("seed squares");
    for (std::int64_t size : sizes) {
      progress.update(int(rows.size()), int(sizes.size()), fmt::format("{} {}", type, size));
      rows.push_back(measured(bench, square(options, type, size)));
      progress.hide();
      print_row(rows.back());
      json["rows"].push_back(json_of(rows.back()));
    }
    for (Provider Row::* peer : {&Row::cublas, &Row::triton}) print_ratio(rows, peer);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  write_file(options.csv, csv_of(all));
  if (!options.json.empty()) write_file(options.json, json_text(json));
}

}  // namespace jitgemm::cli
