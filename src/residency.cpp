#include "residency.hpp"

#include "jitgemm/error.hpp"
#include "util/log.hpp"

namespace jitgemm {
namespace {

std::string demand_of(const LaunchGrid& grid) {
  if (grid.cluster > 1) return "clusters of " + std::to_string(grid.cluster) + " thread blocks";
  return "thread blocks of " + std::to_string(grid.threads) + " threads with " + std::to_string(grid.smem_bytes) +
         " bytes of shared memory";
}

/// Of what is refused, smaller clusters may fit, and of single blocks those with half as much shared memory.
bool asks_less(const LaunchGrid& grid, const LaunchGrid& refused) {
  return refused.cluster > 1 ? grid.cluster < refused.cluster
                             : grid.cluster == 1 && grid.smem_bytes <= refused.smem_bytes / 2;
}

}  // namespace

bool Residency::is_why_it_failed(const Ready& ready, Stream stream) noexcept {
  try {
    return !holds(ready, stream);
  } catch (const std::exception&) {
    return false;
  }
}

Ready Residency::instead_of(const Ready& refused, const NormalProblem& problem, Stream stream) {
  LaunchGrid least = refused.shape;
  for (const RankedConfig& ranked : chooser_.planner(problem).ranked()) {
    const LaunchShape shape = launch_shape(problem, ranked.config);
    if (!asks_less(shape, least) || shape.workspace_bytes() > refused.shape.workspace_bytes()) continue;
    const Ready ready = make_ready(store_, problem, ranked.config, backend_.device());
    if (holds(ready, stream)) {
      if (!told_.exchange(true)) {
        logger().warn(
            "{} can never be resident on this part of the device: {} instead of {}; others follow unannounced",
            demand_of(refused.shape), to_string(ready.config), to_string(refused.config));
      }
      return ready;
    }
    least = shape;
  }
  throw Error(ErrorCode::launch_failed, demand_of(least) +
                                            " can never be resident on this stream's part of the device, and " +
                                            "no choice asks for less; give it more SMs")
      .with_config(to_string(refused.config));
}

void Residency::refuse(const Ready& refused) {
  throw Error(ErrorCode::invalid_config, demand_of(refused.shape) +
                                             " can never be resident on this stream's part of the " +
                                             "device; pin a configuration that asks for less, or give it more SMs")
      .with_config(to_string(refused.config));
}

}  // namespace jitgemm
