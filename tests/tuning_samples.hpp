#pragma once

#include <string>

#include "core/problem.hpp"
#include "jitgemm/version.hpp"
#include "plan/rated_device.hpp"
#include "tune/tuning_db.hpp"

namespace jitgemm::test {

inline const RatedDevice h200(device_info_for("sm_90a"));

inline NormalProblem shape(std::int64_t m, std::int64_t n, std::int64_t k) {
  return shape_of(normalise({.m = m, .n = n, .k = k}));
}

inline TuningRecord record_of(const NormalProblem& problem, int block_m = 64, const DeviceInfo& device = h200) {
  TuningRecord record;
  record.problem = problem;
  record.device_name = device.name;
  record.compute_capability = device.compute_capability;
  record.sm_count = device.sm_count;
  record.emulated = device.emulated;
  record.config.block_m = block_m;
  record.median_us = 12.5;
  record.spread = 0.02;
  record.library_version = JITGEMM_VERSION;
  return record;
}

}  // namespace jitgemm::test
