#pragma once

#include <vector>

#include "gemm_cases.hpp"

// What runs on the emulator and on a GPU.
namespace jitgemm::test {

/// Runs every case on one of the devices in turn; reports up to a few failures.
void run_all(std::vector<GemmDevice*> devices, const std::vector<GemmCase>& cases);

KernelConfig small_tile(MainLoop main_loop);

/// The schedules that split tiles, as CTAs that meet in every way: few to a tile, many, and whole tiles after.
std::vector<KernelConfig> split_schedules(MainLoop main_loop);

/// 14 ragged tiles (10 for the larger ones) of 5 k-blocks, with every operand of an epilogue.
Problem split_problem(const KernelConfig& config);

/// Nothing is multiplied: A and B are full of NaN. TMA has nothing to describe then, so this is the portable main
/// loop's.
std::vector<GemmCase> cases_without_product();

void propagates_nan_and_infinity(GemmDevice& device, MainLoop main_loop);

}  // namespace jitgemm::test
