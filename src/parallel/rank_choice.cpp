#include "parallel/rank_choice.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "chooser.hpp"
#include "context_internals.hpp"
#include "core/sharded_problem.hpp"
#include "parallel/overlapped.hpp"
#include "tune/contest.hpp"
#include "tune/tuned_shape.hpp"
#include "util/log.hpp"

namespace jitgemm {
namespace {

constexpr std::size_t most_overlapped = 6;  // candidates
static_assert(most_overlapped < most_rank_candidates);

bool takes_as_long(const RankProblem& measured, const RankProblem& problem) {
  return measured.asked.m == problem.asked.m;
}

bool may_run(Context& context, const RankProblem& p, const RankCandidate& candidate, std::size_t staging_bytes) {
  const auto& [method, config] = candidate;
  if (method == ParallelMethod::one_shot) return false;  // is never measured
  const NormalProblem kernel = problem_of(p, method);
  if (!ContextInternals::chooser(context).planner(kernel).why_not(config).empty()) return false;
  return method != ParallelMethod::overlapped ||
         Overlapped::staging_bytes(p.ranks, p.asked, p.exchange, config) <= staging_bytes;
}

/// `us`: that a call of `measured` took.
AgreedChoice choice_of(Context& context, const RankProblem& problem, const RankProblem& measured,
                       const RankCandidate& candidate, PlanSource source, std::string why, double us) {
  if (!takes_as_long(measured, problem)) why += ", as for m=" + std::to_string(measured.asked.m);
  AgreedChoice choice{.config = candidate.config,
                      .source = source,
                      .why = why,
                      .method = candidate.method,
                      .why_method = why,
                      .together_us = takes_as_long(measured, problem) ? us : 0};
  if (choice.method != ParallelMethod::unfused) return choice;
  const Plan own = context.plan(problem.product);
  if (own.config == choice.config) choice.measured_us = own.measured_us;
  return choice;
}

}  // namespace

RankProblem measured_problem(const RankProblem& p, bool bucket_m) {
  const int parts = p.exchange == Exchange::all_reduce_d ? 1 : p.ranks;
  Problem part = p.asked;
  part.m /= parts;
  Problem tuned = tuned_shape(shape_of(normalise(part)), bucket_m);
  tuned.m *= parts;
  if (tuned.a.layout == Layout::column_major) tuned.a.ld = std::max({tuned.a.ld, p.asked.a.ld, tuned.m});
  return rank_problem(tuned, p.exchange, p.ranks);
}

std::optional<AgreedChoice> recorded_choice(Context& context, const RankProblem& problem, std::size_t staging_bytes) {
  Chooser& chooser = ContextInternals::chooser(context);
  const RankProblem measured = measured_problem(problem, chooser.buckets_m());
  const TuningLookup found = chooser.find(shape_of(measured.asked), {problem.ranks, problem.exchange});
  if (found.match != Match::exact) return std::nullopt;
  const RankCandidate candidate{found.method, found.config};
  if (!may_run(context, problem, candidate, staging_bytes)) return std::nullopt;
  return choice_of(context, problem, measured, candidate, PlanSource::exact, found.why + " by all ranks together",
                   found.measured_us);
}

RankTask task_for(Context& context, const RankProblem& problem, const AgreedChoice& first, std::size_t staging_bytes) {
  Chooser& chooser = ContextInternals::chooser(context);
  if (first.together_us > 0 || chooser.seconds_to_measure() <= 0) return {};
  const RankProblem measured = measured_problem(problem, chooser.buckets_m());
  RankTask task{
      .candidates = {}, .budget_seconds = 0, .bucket_m = chooser.buckets_m(), .emulated = chooser.device().emulated};
  std::string why_not;
  for (const RankedConfig& ranked :
       Overlapped::ranked(context, measured.ranks, measured.asked, measured.exchange, most_overlapped, why_not))
    task.candidates.push_back({ParallelMethod::overlapped, ranked.config});
  context.workspace_size(measured.product);  // measures first
  task.candidates.push_back({ParallelMethod::unfused, context.plan(measured.product).config});
  std::erase_if(task.candidates,
                [&](const RankCandidate& candidate) { return !may_run(context, measured, candidate, staging_bytes); });
  std::ranges::stable_partition(task.candidates,
                                [&](const RankCandidate& candidate) { return candidate.method == first.method; });
  // Of either method one is among the first two, which are measured whatever the budget.
  const auto other = std::ranges::find_if(
      task.candidates, [&](const RankCandidate& candidate) { return candidate.method != first.method; });
  if (other != task.candidates.end() && other - task.candidates.begin() > 1)
    std::rotate(task.candidates.begin() + 1, other, other + 1);
  task.budget_seconds = chooser.seconds_to_measure();
  if (task.candidates.size() < 2 || task.budget_seconds <= 0) task.candidates.clear();
  return task;
}

AgreedChoice measured_choice(Context& context, const RankProblem& problem, const RankTask& task, const RankTimes& times,
                             const AgreedChoice& first, std::size_t staging_bytes) {
  const RankProblem measured = measured_problem(problem, task.bucket_m);
  const RankCandidate& candidate = task.candidates[times.candidate];
  TuningRecord record;
  record.problem = shape_of(measured.asked);
  record.across = {problem.ranks, problem.exchange};
  record.method = candidate.method;
  record.config = candidate.config;
  record.median_us = times.median_us;
  record.spread = times.spread;
  std::vector<RankedConfig> all;
  for (const RankCandidate& each : task.candidates) all.push_back({each.config, 0});
  record.candidates = candidate_set(all);
  ContextInternals::chooser(context).keep(record, times.seconds);
  logger().info("tuned {} {} across ranks in {:.2f} s: {} {}, {:.1f} us", to_string(record.across),
                to_string(record.problem), times.seconds, to_string(record.method), to_string(record.config),
                record.median_us);

  if (!may_run(context, problem, candidate, staging_bytes)) return first;
  const std::string among = std::to_string(times.measured) + " that all ranks measured together now";
  return choice_of(context, problem, measured, candidate, PlanSource::measured, why_chosen(times.kept_first, among),
                   times.median_us);
}

}  // namespace jitgemm
