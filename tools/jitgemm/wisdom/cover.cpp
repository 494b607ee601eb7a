// wisdom cover: which few kernels serve many problems.
#include "wisdom/cover.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
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

/// What `jitgemm bench` has written.
std::vector<CoveredProblem> from_csv(const fs::path& file, const RatedDevice& device) {
  std::vector<CoveredProblem> problems;
  for (const BenchRecord& record : read_csv(file)) {
    CoveredProblem& p = problems.emplace_back(CoveredProblem{shape_of(normalise(record.problem)), device});
    std::vector<ArmResult> arms = record.pinned;
    arms.insert(arms.end(), {record.model, record.tuned, record.best});
    for (const ArmResult& arm : arms) {
      if (arm.timed()) p.measured.emplace_back(parse_kernel_config(arm.config), arm.us);
    }
  }
  return problems;
}

std::vector<CoveredProblem> from_wisdom(const fs::path& file) {
  std::vector<CoveredProblem> problems;
  for (const TuningResult& result : read_wisdom(file.string()).results) {
    RatedDevice device(device_info_for(result.architecture));
    device.name = result.device;
    device.sm_count = result.sm_count;
    device.emulated = result.emulated;
    problems.push_back(
        {shape_of(normalise(result.problem)), device, {{result.config, result.median_us}}, result.constraints});
  }
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
  const fs::path file = options.file;
  const std::vector<CoveredProblem> problems = file.extension() == ".csv"
                                                   ? from_csv(file, RatedDevice(device_info_for(options.architecture)))
                                                   : from_wisdom(file);
  if (problems.empty()) {
    throw Error(ErrorCode::io, file.string() +
                                   " has no tuning result: give a wisdom file, a tuning database (*.jsonl), "
                                   "or what `jitgemm bench` wrote (*.csv)");
  }
  const KernelCover cover = cover_kernels(problems, *std::max_element(sizes.begin(), sizes.end()));
  if (!options.list.empty()) write_list(options.list, cover);
  const auto quality = [&](std::size_t size) { return cover.quality.at(std::min(size, cover.quality.size()) - 1); };
  if (options.json) {
    nlohmann::ordered_json json = {
        {"problems", problems.size()}, {"needed", cover.needed}, {"sets", nlohmann::json::array()}};
    for (const std::size_t size : sizes) {
      const auto q = quality(size);
      json["sets"].push_back({{"kernels", size},
                              {"regret_geomean", q.geomean},
                              {"regret_p95", q.p95},
                              {"without_kernel", q.without_kernel}});
    }
    return print_json(json);
  }
  fmt::print("{}; the best choices need {}\n{:>8} {:>8} {:>8}\n{:>8} {:>8} {:>8}\n",
             counted(problems.size(), "problem"), counted(cover.needed, "kernel"), "", "regret", "", "kernels",
             "geomean", "p95");
  for (const std::size_t size : sizes) {
    const auto q = quality(size);
    fmt::print("{:>8} {:>8.3f} {:>8.3f}", size, q.geomean, q.p95);
    if (q.without_kernel > 0) fmt::print("  {} without a kernel", counted(q.without_kernel, "problem"));
    fmt::print("\n");
  }
}

}  // namespace jitgemm::cli
