#include "bench/draw.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <utility>

#include "context_internals.hpp"
#include "core/problem.hpp"
#include "kernels/family.hpp"
#include "plan/candidates.hpp"

namespace jitgemm::cli {
namespace {

struct Feature {
  const char* name;
  bool (*has)(const KernelConfig&);
};
constexpr std::array features{
    Feature{"multicast", [](const KernelConfig& c) { return c.cluster_m * c.cluster_n > 1; }},
    Feature{"clusters above 2", [](const KernelConfig& c) { return c.cluster_m * c.cluster_n * c.cluster_k > 2; }},
    Feature{"cluster_k", [](const KernelConfig& c) { return c.cluster_k > 1; }},
    Feature{"ping-pong", [](const KernelConfig& c) { return c.ping_pong; }},
    Feature{"swapped operands", [](const KernelConfig& c) { return c.swap_ab; }},
    Feature{"three consumers", [](const KernelConfig& c) { return c.warps == 12; }},
    Feature{"256 rows", [](const KernelConfig& c) { return !family_of(c).portable && c.block_m == 256; }},
    Feature{"widths off 64", [](const KernelConfig& c) { return c.block_n % 64 != 0; }},
    Feature{"persistent", [](const KernelConfig& c) { return c.schedule == Schedule::persistent && !c.ping_pong; }},
    Feature{"split_k and stream_k",
            [](const KernelConfig& c) {
              return c.schedule != Schedule::persistent && c.schedule != Schedule::data_parallel;
            }},
    Feature{"packing", [](const KernelConfig& c) { return c.pack_a || c.pack_b; }},
    Feature{"portable loop", [](const KernelConfig& c) { return family_of(c).portable; }},
};

/// The two of it that the model expects to be the fastest.
std::vector<KernelConfig> best_of_kernel(const KernelConfig& kernel, const Problem& p, Context& context) {
  std::vector<std::pair<double, KernelConfig>> predicted;
  const NormalProblem shape = shape_of(normalise(p));
  for (const KernelConfig& config : refits(kernel, shape, ContextInternals::backend(context).device()))
    predicted.emplace_back(context.plan(p, config).predicted.us, config);
  std::ranges::stable_sort(predicted, {}, [](const auto& one) { return one.first; });
  std::vector<KernelConfig> best;
  for (std::size_t i = 0; i < predicted.size() && i < 2; ++i) best.push_back(predicted[i].second);
  if (best.empty()) best.push_back(kernel);  // so that the record says why not
  return best;
}

}  // namespace

std::vector<std::string> ablated_features() {
  std::vector<std::string> names;
  for (const Feature& feature : features) names.push_back(feature.name);
  return names;
}

std::vector<KernelConfig> draw(const Draw& wanted, const Problem& p, Context& context, std::string_view main_loop) {
  std::vector<KernelConfig> ranked, drawn;
  if (wanted.empty()) return drawn;
  for (const Plan& plan : context.candidates(p))
    if (main_loop.empty() || to_string(plan.config.main_loop) == main_loop) ranked.push_back(plan.config);
  const auto add = [&](const KernelConfig& config) {
    if (std::find(drawn.begin(), drawn.end(), config) == drawn.end()) drawn.push_back(config);
  };
  for (std::size_t i = 0; i < ranked.size() && i < std::size_t(std::max(wanted.first, wanted.ablate)); ++i)
    add(ranked[i]);
  if (wanted.ablate > 0)
    for (const Feature& feature : features) {
      int left = wanted.ablate;
      for (const KernelConfig& config : ranked)
        if (left > 0 && !feature.has(config)) add(config), --left;
    }
  for (auto [of, kernel] : wanted.kernels) {
    kernel.block_k = kernel.block_k * int(size_of(of.a.type)) / int(size_of(p.a.type));  // the same bytes
    for (const KernelConfig& config : best_of_kernel(kernel, p, context)) add(config);
  }
  std::mt19937_64 random(wanted.seed + std::hash<std::string>{}(to_string(p)));
  std::shuffle(ranked.begin(), ranked.end(), random);
  const std::size_t most = drawn.size() + std::size_t(wanted.random);
  for (std::size_t i = 0; i < ranked.size() && drawn.size() < most; ++i) add(ranked[i]);
  return drawn;
}

}  // namespace jitgemm::cli
