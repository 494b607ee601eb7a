#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/groups.hpp"
#include "core/problem.hpp"
#include "plan/constraints.hpp"
#include "plan/ranking.hpp"
#include "plan/rated_device.hpp"

namespace jitgemm {

/// What may be chosen for one problem, within constraints, and how long each choice is predicted to take. Made once a
/// look-up, for all that is asked on the way.
class Planner {
 public:
  /// `part`: part_of() the device. It and the (normalised) problem outlive this.
  Planner(const NormalProblem& problem, const RatedDevice& part, const Constraints& constraints)
      : problem_(problem), part_(part), filter_(constraints, problem, part), constrained_(constrain(constraints)) {
    if (!has_groups(problem)) return;
    const NormalProblem typical = typical_problem(problem);
    expected_.emplace(expected_problem(typical, std::max<std::int64_t>(1, typical.batch)));
  }

  const NormalProblem& problem() const { return problem_; }

  /// Empty if the configuration may be chosen, else the rule or the constraint that it breaks.
  std::string why_not(const KernelConfig& config) const;
  double predict_us(const KernelConfig& config) const;
  /// Of a kernel's legal configurations, see candidates.hpp, those that may be chosen.
  std::vector<KernelConfig> refits(const KernelConfig& kernel) const;
  /// See rank().
  std::vector<RankedConfig> ranked(std::size_t limit = 0) const;

 private:
  void add(const std::vector<KernelConfig>& configs, std::vector<RankedConfig>& ranked) const;
  std::vector<RankedConfig> predicted(std::size_t limit) const;
  /// What candidates and predictions are of: a typical problem's groups as they are expected.
  const NormalProblem& planned() const { return expected_ ? *expected_ : problem_; }

  const NormalProblem& problem_;
  std::optional<NormalProblem> expected_;
  const RatedDevice& part_;
  ConstraintFilter filter_;
  bool constrained_;
};

}  // namespace jitgemm
