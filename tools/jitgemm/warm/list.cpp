#include "warm/list.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "common/kernel_list.hpp"
#include "common/parallel.hpp"
#include "common/progress.hpp"
#include "context_internals.hpp"

namespace jitgemm::cli {
namespace {

/// Compiles them, and what tuning among them checks results by, so that it needs no compiler either.
std::size_t compile_list(Context& context, const KernelList& list, int jobs) {
  Progress progress("warming");
  const auto compile = [&](int i) {
    const auto& [problem, config] = list[std::size_t(i)];
    try {
      context.compile(problem, config);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_config) throw;
      throw Error(error.code(),
                  fmt::format("\"{}; {}\" of the list: {}", to_string(problem), to_string(config), error.what()));
    }
  };
  parallel_for(int(list.size()), jobs, compile, [&](int done) { progress.update(done, int(list.size())); });
  std::set<std::string> kinds;
  for (auto [problem, config] : list) {
    problem.m = problem.n = problem.k = 1;
    if (kinds.insert(to_string(problem)).second) ContextInternals::warm_check(context, problem);
  }
  progress.hide();
  return list.size();
}

// Of rows that begin at multiples of 16 bytes in any layout: kernels know no other property of an extent.
constexpr std::int64_t aligned_extent = 4096;

bool is_legal(Context& context, const Problem& problem, const KernelConfig& config) {
  try {
    context.plan(problem, config);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_config) throw;
    return false;
  }
}

/// A stage takes more in some layouts than in those that the list was measured in: as many as are legal, if any are.
bool fit_stages(Context& context, const Problem& problem, KernelConfig& config) {
  while (!is_legal(context, problem, config))
    if (--config.stages < 2) return false;
  return true;
}

}  // namespace

std::size_t warm_list(Context& context, const std::string& path, int jobs) {
  return compile_list(context, read_kernel_list(path), jobs);
}

std::size_t warm_few(Context& context, const ProblemOptions& options, std::size_t kernels, int jobs) {
  std::istringstream lines(few_kernels_sm90);
  KernelList few = parse_kernel_list(lines, "few_kernels_sm90"), list;
  if (kernels > few.size()) {
    throw Error(ErrorCode::invalid_option, fmt::format("the list has {} kernels; give --kernels 1 to {}, or a list of "
                                                       "your own with --configs",
                                                       few.size(), few.size()));
  }
  for (auto [problem, config] : few) {
    if (list.size() == kernels) break;
    problem = options.problem(aligned_extent, aligned_extent, aligned_extent);
    config.block_k = config.block_k * 2 / int(size_of(problem.a.type));  // the same bytes as of f16
    if (fit_stages(context, problem, config)) list.emplace_back(problem, config);
  }
  if (list.empty())
    throw Error(ErrorCode::invalid_problem,
                "none of the list's configurations is legal for these types and layouts; "
                "give sizes with -m, -n and -k, or --shapes");
  return compile_list(context, list, jobs);
}

}  // namespace jitgemm::cli
