#include "plan_of.hpp"

#include "kernels/launch_shape.hpp"
#include "plan/constraints.hpp"
#include "plan/cost_model.hpp"

namespace jitgemm {

Plan plan_of(const NormalProblem& problem, const Choice& choice, const RatedDevice& device,
             const Constraints& constraints) {
  const LaunchShape shape = launch_shape(problem, choice.config);
  const device::Decomposition& d = shape.decomposition;
  Plan plan;
  plan.problem = problem;
  plan.config = choice.config;
  plan.source = choice.source;
  plan.why = choice.why;
  if (choice.source != PlanSource::pinned) plan.constraints = constraints;
  plan.predicted = predict(choice.config, problem, part_of(device, plan.constraints));
  plan.rates = device.rates.origin;
  plan.runners_up = choice.runners_up;
  plan.measured_us = choice.measured_us;
  plan.spread = choice.spread;
  plan.expected_regret = choice.expected_regret;
  plan.device = device.name;
  plan.tiles_m = d.tiles_m;
  plan.tiles_n = d.tiles_n;
  plan.stream_k_tiles = d.stream_k_tiles;
  plan.data_parallel_tiles = d.splits > 1 ? 0 : device::tile_count(d) - d.stream_k_tiles;
  plan.ctas = shape.grid;
  plan.k_blocks_per_tile = d.k_blocks;
  plan.stream_k_blocks = std::int64_t(d.stream_k_tiles) * d.k_blocks;
  plan.workspace_bytes = shape.workspace_bytes();
  plan.packed_bytes = shape.packed_bytes;
  plan.smem_bytes = shape.smem_bytes;
  plan.threads = shape.threads;
  return plan;
}

}  // namespace jitgemm
