#include "tune/kernel_cover.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "jit/source_generator.hpp"
#include "plan/constraints.hpp"
#include "plan/cost_model.hpp"
#include "plan/ranking.hpp"

namespace jitgemm {
namespace {

constexpr double log_without_kernel = 1e6;  // outweighs all else: what has no kernel is served first

/// A kernel with what it does for each problem that it can compute.
struct Candidate {
  CoverKernel kernel;
  std::vector<std::pair<std::size_t, double>> log_regrets;  // by place of the problem
};

class Table {
 public:
  explicit Table(const std::vector<CoveredProblem>& problems) {
    for (std::size_t i = 0; i < problems.size(); ++i) add(i, problems[i]);
  }
  const std::vector<Candidate>& candidates() const { return candidates_; }
  std::size_t needed() const { return best_.size(); }

 private:
  struct Timed {
    KernelConfig config;
    double us = std::numeric_limits<double>::infinity();
  };

  void add(std::size_t place, const CoveredProblem& p) {
    std::map<std::string, Timed> kernels;  // by identity: the fastest configuration
    const auto take = [&](const KernelConfig& config, double us) {
      Timed& timed = kernels[kernel_identity(p.problem, config, p.device)];
      if (us < timed.us) timed = {config, us};
    };
    Timed best;
    for (const auto& [config, us] : p.measured) {
      if (!why_illegal(config, p.problem, p.device).empty()) continue;
      if (us < best.us) best = {config, us};
      take(config, us);
    }
    const bool measured = !kernels.empty();
    const double scale = measured ? best.us / predict_us(best.config, p.problem, part_of(p.device, p.constraints)) : 1;
    std::set<std::string> measured_kernels;
    for (const auto& [identity, timed] : kernels) measured_kernels.insert(identity);
    for (const RankedConfig& ranked : rank(p.problem, p.device, 0, p.constraints)) {
      const double us = scale * ranked.predicted_us;
      if (!measured && us < best.us) best = {ranked.config, us};
      if (measured && measured_kernels.contains(kernel_identity(p.problem, ranked.config, p.device))) continue;
      take(ranked.config, us);
    }
    if (kernels.empty()) return;
    best_.insert(kernel_identity(p.problem, best.config, p.device));
    for (const auto& [identity, timed] : kernels) {
      const double log_regret = std::log(std::max(1.0, timed.us / best.us));
      const auto [found, is_new] = places_.emplace(identity, candidates_.size());
      if (is_new) candidates_.push_back({{p.problem, timed.config}, {}});
      candidates_[found->second].log_regrets.emplace_back(place, log_regret);
    }
  }

  std::vector<Candidate> candidates_;
  std::unordered_map<std::string, std::size_t> places_;  // identity -> place in candidates_
  std::set<std::string> best_;
};

KernelCover::Quality quality_of(const std::vector<double>& log_regrets) {
  KernelCover::Quality quality;
  std::vector<double> served;
  double sum = 0;
  for (const double x : log_regrets) {
    if (x >= log_without_kernel) continue;
    served.push_back(x);
    sum += x;
  }
  quality.without_kernel = log_regrets.size() - served.size();
  if (served.empty()) return quality;
  std::sort(served.begin(), served.end());
  quality.geomean = std::exp(sum / double(served.size()));
  quality.p95 = std::exp(served[std::size_t(std::ceil(0.95 * double(served.size()))) - 1]);
  return quality;
}

}  // namespace

KernelCover cover_kernels(const std::vector<CoveredProblem>& problems, std::size_t most) {
  const Table table(problems);
  KernelCover cover;
  cover.needed = table.needed();
  std::vector<double> log_regrets(problems.size(), log_without_kernel);
  while (cover.kernels.size() < most) {
    const Candidate* best = nullptr;
    double most_gained = 0;
    for (const Candidate& candidate : table.candidates()) {
      double gained = 0;
      for (const auto& [place, x] : candidate.log_regrets) gained += std::max(0.0, log_regrets[place] - x);
      if (gained > most_gained) {
        most_gained = gained;
        best = &candidate;
      }
    }
    if (!best) break;
    for (const auto& [place, x] : best->log_regrets) log_regrets[place] = std::min(log_regrets[place], x);
    cover.kernels.push_back(best->kernel);
    cover.quality.push_back(quality_of(log_regrets));
  }
  return cover;
}

}  // namespace jitgemm
