#include "bench/variants.hpp"

#include <fmt/core.h>

namespace jitgemm::cli {
namespace {

/// False where the library has no such option.
template <typename Options>
bool set_at_hand(Options& options, double factor) {
  if constexpr (requires { options.at_hand_within = factor; }) {
    options.at_hand_within = factor;
    return true;
  } else {
    return false;
  }
}

}  // namespace

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
    if (!set_at_hand(all.back().options, *asked.at_hand))
      throw Error(ErrorCode::invalid_option,
                  "--at-hand is for a library that chooses among what is at hand, which this "
                  "one does not: leave it out");
  }
  return all;
}

KernelConfig VariantChooser::choose(const Problem& p, bool frozen, std::string& note) {
  if (!frozen) return context_.tune(p).plan.config;
  const Plan plan = context_.compile(p);
  if (plan.source != PlanSource::exact)
    note = fmt::format("{}: the database has nothing, so this is the choice of: {}", name_, to_string(plan.source));
  return plan.config;
}

}  // namespace jitgemm::cli
