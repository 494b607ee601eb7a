#include "kernels_at_hand.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>

#include "core/kernel_config_hash.hpp"
#include "jit/call.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "kernels/launch_shape.hpp"
#include "plan/candidates.hpp"
#include "plan/shortlist.hpp"

namespace jitgemm {
namespace {

constexpr std::size_t first_choices = 24;  // of the cost model that may be at hand

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

bool KernelsAtHand::has_check(const NormalProblem& problem) const {
  return store_.at_hand(generate_check(problem, backend_.device()));
}

std::vector<RankedConfig> KernelsAtHand::ranked(const Planner& planner, std::size_t limit, const Limits& limits) {
  const bool listed = [this] {
    const std::lock_guard lock(mutex_);
    return cached_.has_value();
  }();
  if (!listed) list_cache();
  auto found = ranked_of_known(planner, limit, limits);
  if (found.empty() && listed && list_cache()) found = ranked_of_known(planner, limit, limits);
  return found;
}

std::optional<RankedConfig> KernelsAtHand::best(const Planner& planner, const Limits& limits) {
  const auto first = ranked(planner, 1, limits);
  return first.empty() ? std::nullopt : std::optional(first.front());
}

std::vector<RankedConfig> KernelsAtHand::ranked_of_known(const Planner& planner, std::size_t limit,
                                                         const Limits& limits) {
  const NormalProblem& problem = planner.problem();
  std::vector<KernelConfig> in_use = ready_table_.configs();
  for (const RankedConfig& first : planner.ranked(first_choices)) in_use.push_back(first.config);
  Kernels kernels = [this] {
    const std::lock_guard lock(mutex_);
    return *cached_;
  }();
  for (const KernelConfig& config : in_use) {
    const KernelConfig kernel = compiled_part(config);
    auto& entries = kernels.try_emplace(to_string(kernel), kernel, std::set<std::string>()).first->second.second;
    if (const auto refits = planner.refits(kernel); !refits.empty()) entries.insert(entry_of(problem, refits.front()));
  }

  std::vector<RankedConfig> all;
  for (const auto& [text, kernel] : kernels) {
    const std::vector<KernelConfig> refits = planner.refits(kernel.first);
    if (refits.empty() || !kernel.second.contains(entry_of(problem, refits.front()))) continue;
    for (const KernelConfig& config : refits) {
      const double us = planner.predict_us(config);
      if (us <= limits.most_us && launch_shape(problem, config).workspace_bytes() <= limits.most_workspace)
        all.push_back({config, us});
    }
  }
  std::ranges::stable_sort(all, sooner);
  // Looking for a kernel takes far longer than a prediction, and refits share theirs.
  std::unordered_map<KernelConfig, bool, KernelConfigHash> known;
  auto chosen = shortlist(all, limit, [&](const KernelConfig& config) {
    const auto [place, is_new] = known.try_emplace(compiled_part(config));
    if (is_new) place->second = has(problem, config);
    return place->second;
  });
  std::ranges::stable_sort(chosen, sooner);
  return chosen;
}

bool KernelsAtHand::list_cache() {
  Kernels kernels;
  for (const CacheEntryInfo& info : cache_.list(false)) {
    const KernelSource& source = info.entry.source;
    if (info.state != "ok" || source.architecture != backend_.device().architecture()) continue;
    if (const auto config = parsed(source.config))
      kernels.try_emplace(source.config, compiled_part(*config), std::set<std::string>())
          .first->second.second.insert(source.entry);
  }
  const std::lock_guard lock(mutex_);
  const bool changed = cached_ != kernels;
  cached_ = std::move(kernels);
  return changed;
}

}  // namespace jitgemm
