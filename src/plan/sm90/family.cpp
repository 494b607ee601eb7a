// The Hopper kernels, for all types but f32 and f64.
#include "plan/family.hpp"

#include "core/groups.hpp"
#include "core/type_rules.hpp"
#include "kernels/kernel_problem.hpp"
#include "kernels/packing.hpp"
#include "plan/sm90/candidates.hpp"
#include "plan/sm90/cost_model.hpp"
#include "plan/sm90/shortlist.hpp"

namespace jitgemm {
namespace {

std::vector<KernelConfig> schedules(const KernelConfig& tile, const NormalProblem& problem, const DeviceInfo& device) {
  const NormalProblem largest = slab_problem(problem, slab_of(problem, tile));
  return schedules_sm90(tile, kernel_problem(largest, tile), device);
}

PredictedTime predict(const KernelConfig& config, const NormalProblem& problem, const RatedDevice& device) {
  const KernelProblem of_kernel = kernel_problem(problem, config);
  return CostModelSm90(of_kernel, device).time(config);
}

KernelConfig typical(const NormalProblem& problem, int sms) {
  return {.main_loop = MainLoop::sm90,
          .block_m = 128,
          .block_n = 128,
          .block_k = block_k_sm90(problem.a.type),
          .stages = 4,
          .warps = 8,
          .pack_a = needs_packing_a(problem) && !has_groups(problem),
          .pack_b = needs_packing_b(problem) && !has_groups(problem),
          .schedule = sms > 0 || has_groups(problem) ? Schedule::persistent : Schedule::data_parallel,
          .grid = sms};
}

/// All but the clock, which is the others' unit.
std::vector<double*> fitted_rates(DeviceRates& rates) {
  std::vector<double*> values;
  for (const auto& [name, value] : rates.of<HopperRates>().fields())
    if (value != &rates.of<HopperRates>().clocks_us) values.push_back(value);
  return values;
}

}  // namespace

const PlanFamily sm90_plan{.main_loop = MainLoop::sm90,
                           .candidates = candidates_sm90,
                           .schedules = schedules,
                           .clusters = clusters_sm90,
                           .predict = predict,
                           .shortlist = shortlist_sm90,
                           .typical = typical,
                           .fitted_rates = fitted_rates};

}  // namespace jitgemm
