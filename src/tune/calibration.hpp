#pragma once

#include <vector>

#include "plan/ranking.hpp"

namespace jitgemm {

/// A problem and the configurations that are to be measured on it.
struct CalibrationTask {
  NormalProblem problem;  ///< normalised
  std::vector<RankedConfig> configs;
};
/// What tells the rates of a device apart: aligned and unaligned problems, skinny and large ones, each of the device's
/// main loops; of each the first choices and a few drawn at random. Some 400 measurements.
std::vector<CalibrationTask> calibration_tasks(const RatedDevice& device);

/// A measured time.
struct CalibrationSample {
  NormalProblem problem;
  KernelConfig config;
  double us = 0;
};

/// How rates explain samples.
struct CalibrationFit {
  double regret = 1;  ///< of each problem's best predicted configuration: geometric mean of its time over the least
  double error = 0;   ///< root mean square of log(predicted / measured), of those within 1.4 of the least
};

struct Calibration {
  DeviceRates rates;
  CalibrationFit before, after;
};
/// Rates that explain the samples best, starting from those of `device`: random search in the logarithms of the rates,
/// for a small expected regret and small errors where it matters. The same samples give the same rates. Throws
/// Error{invalid_option} for fewer than 3 problems with 2 samples each.
Calibration calibrate(const std::vector<CalibrationSample>& samples, const RatedDevice& device);

}  // namespace jitgemm
