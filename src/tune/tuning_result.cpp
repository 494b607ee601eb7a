#include "tune/tuning_result.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

#include "core/out_of_memory.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

std::string architecture_of(int compute_capability) {
  DeviceInfo device;
  device.compute_capability = compute_capability;
  return device.architecture();
}

/// The inverse, also of architectures that this version has no device for.
int compute_capability_of(const std::string& architecture) {
  constexpr std::string_view prefix = "sm_";
  int number = 0;
  if (architecture.starts_with(prefix))
    std::from_chars(architecture.data() + prefix.size(), architecture.data() + architecture.size(), number);
  if (number <= 0 || architecture != architecture_of(number))
    throw Error(ErrorCode::invalid_option,
                "architecture=" + architecture + " is none; give one such as sm_80 or sm_90a");
  return number;
}

}  // namespace

TuningResult to_result(const TuningRecord& record) {
  return {.problem = record.problem,
          .constraints = record.constraints,
          .device = record.device_name,
          .architecture = architecture_of(record.compute_capability),
          .sm_count = record.sm_count,
          .emulated = record.emulated,
          .config = record.config,
          .median_us = record.median_us,
          .spread = record.spread,
          .runners_up = record.runners_up,
          .date = record.date,
          .library = record.library_version,
          .candidates = record.candidates,
          .ranks = record.across.ranks,
          .exchange = record.across.exchange,
          .method = record.method};
}

std::vector<TuningResult> to_results(const std::vector<TuningRecord>& records) {
  std::vector<TuningResult> results;
  results.reserve(records.size());
  std::transform(records.begin(), records.end(), std::back_inserter(results),
                 [](const TuningRecord& record) { return to_result(record); });
  return results;
}

TuningRecord to_record(const TuningResult& result) {
  TuningRecord record;
  record.problem = shape_of(normalise(result.problem));
  record.constraints = result.constraints;
  record.device_name = result.device;
  record.compute_capability = compute_capability_of(result.architecture);
  record.sm_count = result.sm_count;
  record.emulated = result.emulated;
  record.config = result.config;
  record.median_us = result.median_us;
  record.spread = result.spread;
  record.library_version = result.library;
  record.candidates = result.candidates;
  record.runners_up = result.runners_up;
  record.date = result.date;
  record.across = {result.ranks, result.exchange};
  record.method = result.method;
  return record;
}

std::string TuningResult::json() const {
  return with_memory_errors([&] { return to_json_line(to_record(*this)); });
}

}  // namespace jitgemm
