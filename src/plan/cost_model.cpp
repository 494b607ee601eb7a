#include "plan/cost_model.hpp"

#include "core/groups.hpp"
#include "kernels/packing.hpp"
#include "plan/emulated_cost.hpp"
#include "plan/family.hpp"

namespace jitgemm {
namespace {

// The packing pass, which reads and writes each byte of what it packs. No source is known.
constexpr double packing_launch_us = 1.2, packing_bytes_us = 3.5e6;
constexpr double slab_us = 3.95;  // launch and prologue of a further GEMM kernel

/// Of what is packed, or packs nothing.
PredictedTime predict_gemm(const KernelConfig& config, const NormalProblem& problem, const RatedDevice& device) {
  if (device.emulated) return predict_emulated(config, problem);
  return plan_family_of(config.main_loop).predict(config, problem, device);
}

}  // namespace

double predict_packing_us(const KernelConfig& config, const NormalProblem& problem, const DeviceInfo& device) {
  if (!packs(config)) return 0;
  // What slabs of D cost besides is a launch each, and the A that each of their columns packs again.
  const double slabs = double(slab_count(problem, slab_of(problem, config)));
  const double bytes = slabs * double(packing_of(problem, config).bytes);
  if (device.emulated) return predict_emulated_packing_us(bytes);
  return slabs * packing_launch_us + (slabs - 1) * slab_us + 2 * bytes / packing_bytes_us;
}

PredictedTime predict(const KernelConfig& config, const NormalProblem& problem, const RatedDevice& device) {
  if (has_groups(problem)) return predict_gemm(config, expected_problem(problem, expected_groups(problem)), device);
  if (!packs(config)) return predict_gemm(config, problem, device);
  KernelConfig gemm = config;
  gemm.pack_a = gemm.pack_b = false;
  // Each slab has waves of its own.
  const Slab slab = slab_of(problem, config);
  const double slabs = double(slab_count(problem, slab));
  PredictedTime time = predict_gemm(gemm, packed_problem(slab_problem(problem, slab), config), device);
  time.us = time.launch_us + slabs * (time.us - time.launch_us);
  for (double* part : {&time.main_loop_us, &time.epilogue_us, &time.fixup_us, &time.memory_us, &time.power_us})
    *part *= slabs;
  time.packing_us = predict_packing_us(config, problem, device);
  time.us += time.packing_us;
  return time;
}

double predict_us(const KernelConfig& config, const NormalProblem& problem, const RatedDevice& device) {
  return predict(config, problem, device).us;
}

}  // namespace jitgemm
