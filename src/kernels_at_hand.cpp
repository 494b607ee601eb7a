#include "kernels_at_hand.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "jit/call.hpp"
#include "jitgemm/error.hpp"
#include "kernels/launch_shape.hpp"

namespace jitgemm {
namespace {

constexpr std::size_t candidates = 24;  // of the cost model that may be at hand

/// nullopt: the kernel has no configuration, or one of another version of this library.
std::optional<KernelConfig> parsed(const std::string& text) {
  try {
    return parse_kernel_config(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

bool KernelsAtHand::has(const NormalProblem& problem, const KernelConfig& config) const {
  return std::ranges::all_of(roles_of(problem, config), [&](const KernelRole* role) {
    return store_.at_hand(role->generate(problem, config, backend_.device()));
  });
}

std::optional<RankedConfig> KernelsAtHand::best(const Planner& planner, double most_us, std::size_t most_workspace) {
  std::vector<RankedConfig> ranked = planner.ranked(candidates);
  for (const KernelConfig& config : configs())
    if (planner.why_not(config).empty()) ranked.push_back({config, planner.predict_us(config)});
  std::ranges::stable_sort(ranked, {}, &RankedConfig::predicted_us);
  for (const RankedConfig& one : ranked) {
    if (one.predicted_us > most_us) break;
    if (launch_shape(planner.problem(), one.config).workspace_bytes() > most_workspace) continue;
    if (has(planner.problem(), one.config)) return one;
  }
  return std::nullopt;
}

std::vector<KernelConfig> KernelsAtHand::configs() {
  std::vector<KernelConfig> all = ready_table_.configs();
  const std::lock_guard lock(mutex_);
  if (!cached_) {
    std::set<std::string> texts;
    for (const CacheEntryInfo& info : cache_.list(false))
      if (info.state == "ok" && info.entry.source.architecture == backend_.device().architecture())
        texts.insert(info.entry.source.config);
    cached_.emplace();
    for (const std::string& text : texts)
      if (const auto config = parsed(text)) cached_->push_back(*config);
  }
  all.insert(all.end(), cached_->begin(), cached_->end());
  return all;
}

}  // namespace jitgemm
