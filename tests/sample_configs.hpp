#pragma once

#include "jitgemm/kernel_config.hpp"

namespace jitgemm::test {

/// A small tile of each main loop.
inline constexpr KernelConfig sm80_config{
    .main_loop = MainLoop::sm80, .block_m = 64, .block_n = 64, .block_k = 32, .stages = 3};
inline constexpr KernelConfig sm90_config{
    .main_loop = MainLoop::sm90, .block_m = 128, .block_n = 128, .block_k = 64, .stages = 4, .warps = 8};

inline KernelConfig with_schedule(KernelConfig config, Schedule schedule, int splits, int grid) {
  config.schedule = schedule;
  config.splits = splits;
  config.grid = grid;
  return config;
}

}  // namespace jitgemm::test
