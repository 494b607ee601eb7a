// wisdom cover: which few kernels serve many problems.
#include "wisdom/cover.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>

#include "bench/record.hpp"
#include "common/text.hpp"
#include "core/problem.hpp"
#include "tune/kernel_cover.hpp"
#include "util/output_file.hpp"

namespace jitgemm::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::size_t> parse_sizes(const std::string& text) {
  std::vector<std::size_t> sizes;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) {
    std::size_t size = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), size);
    if (error != std::errc() || rest != word.data() + word.size() || size < 1 || size > 10000) {
      throw Error(ErrorCode::invalid_option,
                  fmt::format("--kernels {} is no list of sizes: give one such as 8,16,24", text));
    }
    sizes.push_back(size);
  }
  if (sizes.empty()) throw Error(ErrorCode::invalid_option, "--kernels is empty: give sizes such as 8,16,24");
  return sizes;
}

/// A problem, with what else makes its times comparable: the protocol of a measurement.
using Cases = std::map<std::string, CoveredProblem>;

/// What was measured of one case on two occasions: the later times as if they were of the first one, by what both have.
void merge(CoveredProblem& first, const CoveredProblem& later) {
  double log_ratio = 0;
  int shared = 0;
  for (const auto& [config, us] : first.measured) {
    for (const auto& [other, other_us] : later.measured) {
      if (!(config == other)) continue;
      log_ratio += std::log(us / other_us);
      ++shared;
    }
  }
  if (shared == 0) return;
  const double ratio = std::exp(log_ratio / shared);
  for (const auto& [config, us] : later.measured) first.measured.emplace_back(config, ratio * us);
}

KernelConfig config_in(const fs::path& file, const std::string& text) {
  try {
    return parse_kernel_config(text);
  } catch (const Error& error) {
    throw Error(ErrorCode::io, fmt::format("{}: {}; remove its line", file.string(), error.what()));
  }
}

/// What `jitgemm bench` has written.
Cases from_csv(const fs::path& file, DeviceInfo device) {
  Cases cases;
  for (const BenchRecord& record : read_csv(file)) {
    device.name = record.device;  // whose rates choose
    CoveredProblem p{shape_of(normalise(record.problem)), RatedDevice(device)};
    std::vector<ArmResult> arms = record.pinned;
    arms.insert(arms.end(), {record.model, record.tuned, record.best});
    for (const NamedArm& arm : record.others)
      if (arm.name != "serial") arms.push_back(arm.result);  // whose kernels are others
    for (const ArmResult& arm : arms) {
      if (arm.timed()) p.measured.emplace_back(config_in(file, arm.config), arm.us);
    }
    const auto [found, is_new] = cases.try_emplace(
        fmt::format("{} {} {}", to_string(record.problem), record.device, to_string(record.protocol)), p);
    if (!is_new) merge(found->second, p);
  }
  return cases;
}

Cases from_wisdom(const fs::path& file) {
  Cases cases;
  for (const TuningResult& result : read_wisdom(file.string()).results) {
    if (result.ranks > 1) continue;  // those kernels are for nothing else
    RatedDevice device(device_info_for(result.architecture));
    device.name = result.device;
    device.sm_count = result.sm_count;
    device.emulated = result.emulated;
    const CoveredProblem p{
        shape_of(normalise(result.problem)), device, {{result.config, result.median_us}}, result.constraints};
    cases.try_emplace(fmt::format("{} {} {} {} {}", to_string(result.problem), result.device, result.sm_count,
                                  result.emulated, to_string(result.constraints)),
                      p);
  }
  return cases;
}

/// Those of all files, each file a corpus.
std::vector<CoveredProblem> problems_of(const CoverOptions& options) {
  const DeviceInfo device = device_info_for(options.architecture);
  Cases all;
  for (std::size_t corpus = 0; corpus < options.files.size(); ++corpus) {
    const fs::path file = options.files[corpus];
    const Cases cases = file.extension() == ".csv" ? from_csv(file, device) : from_wisdom(file);
    if (cases.empty()) {
      throw Error(ErrorCode::io, file.string() +
                                     " has no tuning result: give a wisdom file, a tuning database (*.jsonl), "
                                     "or what `jitgemm bench` wrote (*.csv)");
    }
    for (const auto& [name, p] : cases) {
      const auto [found, is_new] = all.try_emplace(name, p);
      if (is_new)
        found->second.corpus = corpus;
      else
        merge(found->second, p);
    }
  }
  std::vector<CoveredProblem> problems;
  for (const auto& [name, p] : all) problems.push_back(p);
  return problems;
}

void write_list(const fs::path& file, const KernelCover& cover) {
  std::string text = "# problem; configuration, for `jitgemm warm --configs`: any number of the first lines is a set\n";
  for (const CoverKernel& kernel : cover.kernels) {
    text += fmt::format("{}; {}\n", to_string(kernel.problem), to_string(kernel.config));
  }
  std::string why;
  if (!write_output(file, text, &why)) {
    throw Error(ErrorCode::io, fmt::format("cannot write {}: {}; write elsewhere", file.string(), why));
  }
}

}  // namespace

void wisdom_cover(const CoverOptions& options) {
  const std::vector<std::size_t> sizes = parse_sizes(options.sizes);
  const std::vector<CoveredProblem> problems = problems_of(options);
  std::vector<std::size_t> ascending = sizes;
  std::ranges::sort(ascending);
  const KernelCover cover = cover_kernels(
      problems, {.sizes = ascending, .any_types = options.any_types, .measured_only = options.measured_only});
  if (cover.kernels.empty()) {
    throw Error(ErrorCode::io,
                fmt::format("{} {} no time of a kernel that may be chosen: give what `jitgemm bench` wrote on a GPU",
                            fmt::join(options.files, ", "), options.files.size() == 1 ? "has" : "have"));
  }
  if (!options.list.empty()) write_list(options.list, cover);
  const auto at = [](const std::vector<KernelCover::Quality>& quality, std::size_t size) {
    return quality.at(std::min(size, quality.size()) - 1);
  };
  if (options.json) {
    const auto json_of = [](const KernelCover::Quality& q) {
      return nlohmann::ordered_json{{"regret_geomean", q.geomean},
                                    {"regret_p95", q.p95},
                                    {"chosen_geomean", q.chosen_geomean},
                                    {"chosen_p95", q.chosen_p95},
                                    {"without_kernel", q.without_kernel}};
    };
    nlohmann::ordered_json json = {
        {"problems", problems.size()}, {"needed", cover.needed}, {"sets", nlohmann::json::array()}};
    for (const std::size_t size : sizes) {
      nlohmann::ordered_json set = {{"kernels", size}};
      set.update(json_of(at(cover.quality, size)));
      for (std::size_t i = 0; i < cover.quality_of_corpus.size(); ++i)
        set["files"][options.files[i]] = json_of(at(cover.quality_of_corpus[i], size));
      json["sets"].push_back(set);
    }
    return print_json(json);
  }
  fmt::print("{}; the best choices need {}\n{:>8} {:>17} {:>17}\n{:>8} {:>8} {:>8} {:>8} {:>8}\n",
             counted(problems.size(), "problem"), counted(cover.needed, "kernel"), "", "best of the set",
             "the model's first", "kernels", "geomean", "p95", "geomean", "p95");
  const auto print = [](std::size_t size, const KernelCover::Quality& q, const std::string& whose) {
    fmt::print("{:>8} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f}  {}", size, q.geomean, q.p95, q.chosen_geomean, q.chosen_p95,
               whose);
    if (q.without_kernel > 0) fmt::print("  {} without a kernel", counted(q.without_kernel, "problem"));
    fmt::print("\n");
  };
  for (const std::size_t size : sizes) {
    print(size, at(cover.quality, size), "");
    if (cover.quality_of_corpus.size() < 2) continue;
    for (std::size_t i = 0; i < cover.quality_of_corpus.size(); ++i)
      print(size, at(cover.quality_of_corpus[i], size), options.files[i]);
  }
}

}  // namespace jitgemm::cli
