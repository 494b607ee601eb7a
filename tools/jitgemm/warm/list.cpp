#include "warm/list.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "common/parallel.hpp"
#include "common/progress.hpp"
#include "context_internals.hpp"

namespace jitgemm::cli {
namespace {

KernelList parse_list(std::istream& file, const std::string& path) {
  KernelList list;
  std::string line;
  for (int row = 1; std::getline(file, line); ++row) {
    line.resize(std::min(line.find_first_of("#\r"), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::size_t cut = line.find("; ");
    try {
      if (cut == std::string::npos) throw Error(ErrorCode::io, "no `problem; configuration`");
      list.emplace_back(parse_problem(line.substr(0, cut)), parse_kernel_config(line.substr(cut + 2)));
    } catch (const Error& error) {
      throw Error(ErrorCode::io, fmt::format("{}:{}: {}; correct or remove the line", path, row, error.what()));
    }
  }
  if (list.empty()) throw Error(ErrorCode::io, path + " has no `problem; configuration` line");
  return list;
}

/// Compiles them, and what tuning among them checks results by, so that it needs no compiler either.
std::size_t compile_list(Context& context, const KernelList& list, int jobs) {
  Progress progress("warming");
  parallel_for(
      int(list.size()), jobs, [&](int i) { context.compile(list[std::size_t(i)].first, list[std::size_t(i)].second); },
      [&](int done) { progress.update(done, int(list.size())); });
  std::set<std::string> kinds;
  for (auto [problem, config] : list) {
    problem.m = problem.n = problem.k = 1;
    if (kinds.insert(to_string(problem)).second) ContextInternals::warm_check(context, problem);
  }
  progress.hide();
  return list.size();
}

}  // namespace

KernelList read_list(const std::string& path) {
  std::ifstream file(path);
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  if (!file || is_directory) {
    throw Error(ErrorCode::io, fmt::format("cannot read {}{}: give what `jitgemm wisdom cover --list` wrote", path,
                                           is_directory ? ", a directory" : ""));
  }
  return parse_list(file, path);
}

std::size_t warm_list(Context& context, const std::string& path, int jobs) {
  return compile_list(context, read_list(path), jobs);
}

std::size_t warm_few(Context& context, const ProblemOptions& options, std::size_t kernels, int jobs) {
  std::istringstream lines(few_kernels_sm90);
  KernelList few = parse_list(lines, "few_kernels_sm90"), list;
  if (kernels > few.size()) {
    throw Error(ErrorCode::invalid_option, fmt::format("the list has {} kernels; give --kernels 1 to {}, or a list of "
                                                       "your own with --configs",
                                                       few.size(), few.size()));
  }
  few.resize(kernels);
  for (auto [problem, config] : few) {
    problem = options.problem(problem.m, problem.n, problem.k);
    config.block_k = config.block_k * 2 / int(size_of(problem.a.type));  // the same bytes as of f16
    try {
      context.plan(problem, config);
      list.emplace_back(problem, config);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_config) throw;
    }
  }
  if (list.empty())
    throw Error(ErrorCode::invalid_problem,
                "none of the list's configurations is legal for these types and layouts; "
                "give sizes with -m, -n and -k, or --shapes");
  return compile_list(context, list, jobs);
}

}  // namespace jitgemm::cli
