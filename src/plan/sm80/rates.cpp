#include "plan/sm80/rates.hpp"

namespace jitgemm {

namespace {

constexpr double h200_sms = 132;
constexpr double sustained_memory = 0.86;  // of the data sheet's

}  // namespace

// An H200's by ratio: the loop's latencies are mostly instructions.
PortableRates PortableRates::derived(const DataSheet& device) {
  PortableRates portable;
  const double clock = device.relative_clock;
  portable.sm_flops_us *= device.mma_sync * clock;
  portable.power_flops_us *= device.mma_sync * clock * device.sms / h200_sms;
  for (double* time : {&portable.prologue_us, &portable.tile_prologue_us, &portable.step_us, &portable.mma_us,
                       &portable.epilogue_us}) {
    *time /= clock;
  }
  for (double* rate : {&portable.sm_l2_bytes_us, &portable.sm_smem_bytes_us}) *rate *= clock;
  for (double* rate : {&portable.partial_bytes_us, &portable.operand_bytes_us}) *rate *= clock * device.sms / h200_sms;
  portable.memory_bytes_us = sustained_memory * device.memory_bytes_us;
  return portable;
}

NamedRates PortableRates::fields() {
  return {{"sm80.launch_us", &launch_us},
          {"sm80.sm_flops_us", &sm_flops_us},
          {"sm80.power_flops_us", &power_flops_us},
          {"sm80.prologue_us", &prologue_us},
          {"sm80.tile_prologue_us", &tile_prologue_us},
          {"sm80.latency_us", &latency_us},
          {"sm80.step_us", &step_us},
          {"sm80.mma_us", &mma_us},
          {"sm80.epilogue_us", &epilogue_us},
          {"sm80.arrival_us", &arrival_us},
          {"sm80.partial_bytes_us", &partial_bytes_us},
          {"sm80.operand_bytes_us", &operand_bytes_us},
          {"sm80.sm_l2_bytes_us", &sm_l2_bytes_us},
          {"sm80.sm_smem_bytes_us", &sm_smem_bytes_us},
          {"sm80.unhidden", &unhidden},
          {"sm80.memory_bytes_us", &memory_bytes_us}};
}

}  // namespace jitgemm
