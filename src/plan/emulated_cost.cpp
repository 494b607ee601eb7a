#include "plan/emulated_cost.hpp"

#include "kernels/launch_shape.hpp"
#include "plan/sm80/rates.hpp"

namespace jitgemm {
namespace {

// Of one core's time, in microseconds; no source is known.
constexpr double any_launch_us = 10;
constexpr double fragment_us = 3, products_of_fragment = 4096;  // 16 x 16 x 16
constexpr double thread_us = 2;                                 // from its start to its end, besides its k-blocks
constexpr double thread_step_us = 0.5;
constexpr double partial_bytes_us = 1000, packed_bytes_us = 500;  // bytes a microsecond

}  // namespace

PredictedTime predict_emulated(const KernelConfig& config, const NormalProblem& problem) {
  PredictedTime time;
  time.us = time.launch_us = PortableRates{}.launch_us;
  const LaunchShape shape = launch_shape(problem, config);
  if (shape.grid == 0) return time;
  const device::Decomposition& d = shape.decomposition;
  const double steps = double(device::tile_count(d)) * d.k_blocks;
  const double fragments = double(config.block_m) * config.block_n * config.block_k / products_of_fragment;
  time.us = any_launch_us + steps * (fragments * fragment_us + shape.threads * thread_step_us) +
            double(shape.grid) * shape.threads * thread_us + double(shape.partial_bytes) / partial_bytes_us;
  return time;
}

double predict_emulated_packing_us(double bytes) { return bytes / packed_bytes_us; }

}  // namespace jitgemm
