#pragma once

#include "jitgemm/cache.hpp"
#include "tune/tuning_db.hpp"

namespace jitgemm {

TuningResult to_result(const TuningRecord& record);
std::vector<TuningResult> to_results(const std::vector<TuningRecord>& records);
/// Throws Error for what a caller has put together that no record can be.
TuningRecord to_record(const TuningResult& result);

}  // namespace jitgemm
