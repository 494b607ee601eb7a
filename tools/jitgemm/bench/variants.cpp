#include "bench/variants.hpp"

#include <fmt/core.h>

namespace jitgemm::cli {

std::vector<Variant> variants(const BenchOptions& asked, const ContextOptions& options) {
  std::vector<Variant> all;
  if (asked.without_early) {
    all.push_back({"serial", options, false});
    all.back().options.dependent_launch = false;
  }
  if (asked.invariant) {
    all.push_back({"invariant", options});
    all.back().options.constraints.batch_invariant = true;
  }
  if (asked.at_hand) {
    all.push_back({"at_hand", options, true, true});
    all.back().options.at_hand_within = *asked.at_hand;
  }
  return all;
}

KernelConfig VariantChooser::choose(const Problem& p, bool frozen, std::string& note) {
  if (!frozen) return context_.tune(p).plan.config;
  const Plan plan = context_.compile(p);
  const bool measured =
      plan.source == PlanSource::exact || (plan.source == PlanSource::at_hand && plan.measured_us > 0);
  if (!measured)
    note = fmt::format("{}: the database has nothing, so this is the choice of: {}", name_, to_string(plan.source));
  return plan.config;
}

}  // namespace jitgemm::cli
