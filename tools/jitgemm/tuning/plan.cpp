#include "tuning/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "common/text.hpp"
#include "context_options.hpp"
#include "core/problem.hpp"
#include "jit/cache_directory.hpp"
#include "jit/call.hpp"
#include "jit/kernel_cache.hpp"
#include "jitgemm/version.hpp"
#include "plan/ranking.hpp"
#include "tune/autotuner.hpp"
#include "tune/tuned_shape.hpp"
#include "tune/tuning_db.hpp"
#include "util/line_file.hpp"

namespace jitgemm::cli {
namespace {

// One kernel of several that are compiled at once. NVRTC took 2.1 s for four Hopper kernels one after the other and 1.1
// s in four threads; g++ takes about a second of one processor.
constexpr double nvrtc_seconds = 1.1 / 4, host_compiler_seconds = 0.5;

using Shapes = std::unordered_set<Problem, ProblemHash, ProblemEqual>;

/// About as many batches as a candidate gets, each as long as the tuner's; on the emulator a few launches.
double expected_seconds(const Problem& problem, const std::vector<RankedConfig>& candidates, const DeviceInfo& device,
                        double budget) {
  constexpr double batches = 10, shortest_batch_us = 500, fixed_seconds = 0.1, emulated_flops = 2e8;
  double seconds = 0;
  for (const RankedConfig& candidate : candidates) {
    seconds += device.emulated ? flops(problem) / emulated_flops
                               : batches * 1e-6 * std::max(shortest_batch_us, candidate.predicted_us);
  }
  return fixed_seconds + std::min(budget, seconds);
}

/// Where such a Context keeps what it measures.
std::filesystem::path database_of(const ContextOptions& options) {
  return home_of(options) / (is_bounded(options) ? at_hand_db_name : tuning_db_name);
}

std::vector<TuningRecord> records_for(const ContextOptions& options, const DeviceInfo& device) {
  if (home_of(options).empty()) return {};
  std::vector<TuningRecord> records = TuningDb(database_of(options)).records();
  std::erase_if(records, [&](const TuningRecord& record) {
    return record.device_name != device.name || record.compute_capability != device.compute_capability ||
           record.sm_count != device.sm_count || record.emulated != device.emulated ||
           record.library_version != JITGEMM_VERSION || record.constraints != options.constraints ||
           record.across.ranks > 1;
  });
  return records;
}

}  // namespace

TunePlan plan_tuning(const std::vector<Problem>& problems, const ContextOptions& options, bool again) {
  TunePlan plan;
  const RatedDevice device = rated_device(options, make_backend(options)->device());
  plan.device = describe(device);
  // By shape and candidate set.
  std::unordered_multimap<Problem, std::string, ProblemHash, ProblemEqual> tuned;
  for (const TuningRecord& record : records_for(options, device)) tuned.emplace(record.problem, record.candidates);

  Shapes seen;
  for (const Problem& asked : problems) {
    const NormalProblem problem = normalise(asked), shape = tuned_shape(shape_of(problem), options.bucket_m);
    if (!reads_ab(problem)) {
      throw Error(ErrorCode::invalid_problem,
                  to_string(problem) + " multiplies nothing, so there is nothing to tune; leave it out");
    }
    if (!seen.insert(shape).second) continue;
    const int count = candidates_for(shape, device, options.constraints, options.tuning_budget_seconds);
    const std::vector<RankedConfig> candidates = rank(shape, device, std::size_t(count), options.constraints);
    if (candidates.empty()) {
      throw Error(ErrorCode::invalid_problem, to_string(problem) + " has no kernel on " + device.name + " (" +
                                                  device.architecture() + "); use other types");
    }
    const auto [begin, end] = tuned.equal_range(shape);
    const std::string set = candidate_set(candidates);
    // Which candidates are at hand only the Context knows that tunes.
    const bool is_tuned =
        std::any_of(begin, end, [&](const auto& entry) { return is_bounded(options) || entry.second == set; });
    plan.tuned += is_tuned;
    if (is_tuned && !again) continue;
    TuneTask task;
    task.problem = problem;
    task.expected_seconds = expected_seconds(problem, candidates, device, options.tuning_budget_seconds);
    if (!is_bounded(options))
      for (const RankedConfig& candidate : candidates) task.candidates.push_back(candidate.config);
    plan.tasks.push_back(std::move(task));
  }
  plan.shapes = int(seen.size());
  return plan;
}

TuneCost cost_of(const TunePlan& plan, const ContextOptions& options, int devices) {
  const auto backend = make_backend(options);
  std::set<std::string> cached, needed;
  for (const CacheEntryInfo& entry : KernelCache(cache_options(options)).list(false)) {
    if (entry.state == "ok") cached.insert(entry.digest);
  }
  for (const TuneTask& task : plan.tasks) {
    const NormalProblem problem = normalise(task.problem);
    for (const KernelConfig& candidate : task.candidates) {
      for (const KernelRole* role : roles_of(problem, candidate)) {
        const KernelSource source = role->generate(problem, candidate, backend->device());
        needed.insert(cache_key(source, backend->compiler_kind()).digest);
      }
    }
  }
  TuneCost cost;
  cost.kernels = needed.size();
  cost.cached =
      std::size_t(std::count_if(needed.begin(), needed.end(), [&](const auto& key) { return cached.contains(key); }));
  const double a_kernel = plan.device.emulated ? host_compiler_seconds : nvrtc_seconds;
  cost.compile_seconds = a_kernel * double(cost.kernels - cost.cached) / devices;
  cost.measure_seconds = options.tuning_budget_seconds * double((int(plan.tasks.size()) + devices - 1) / devices);
  return cost;
}

void check_database(const ContextOptions& options) {
  const std::filesystem::path home = home_of(options);
  std::string why = prepare_private_directory(home);  // append() would create it for others to read
  if (!home.empty() && LineFile(database_of(options)).append(std::vector<std::string>(), &why)) return;
  throw Error(ErrorCode::io,
              fmt::format("no result could be kept in {}: {}; name a directory that you can write to with "
                          "--cache-dir or JITGEMM_CACHE_DIR",
                          home.empty() ? "a home directory" : home.string(), home.empty() ? "there is none" : why));
}

void check_kept(const std::vector<Problem>& problems, const ContextOptions& options) {
  TuningDb db(database_of(options));
  const DeviceInfo device = make_backend(options)->device();
  const auto lost = std::count_if(problems.begin(), problems.end(), [&](const Problem& problem) {
    return db.find(tuned_shape(shape_of(normalise(problem)), options.bucket_m), device, options.constraints).match !=
           Match::exact;
  });
  if (lost == 0) return;
  throw Error(ErrorCode::io,
              fmt::format("{} not kept in {}: make room there, or name another directory with --cache-dir "
                          "or JITGEMM_CACHE_DIR; JITGEMM_LOG=warn says why",
                          counted(std::uint64_t(lost), "result"), home_of(options).string()));
}

}  // namespace jitgemm::cli
