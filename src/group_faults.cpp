#include "group_faults.hpp"

#include <string>
#include <utility>

#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

/// "2 calls (the last: group 3)"
std::string how_many(unsigned number, const std::string& one, unsigned group) {
  return std::to_string(number) + " " + one + (number == 1 ? " (" : "s (the last: ") + "group " +
         std::to_string(group) + ")";
}

}  // namespace

device::GroupFaults* GroupFaultCounts::on_device() {
  if (device::GroupFaults* const counts = counts_) return counts;
  const std::lock_guard lock(mutex_);
  if (device::GroupFaults* const counts = counts_) return counts;
  const auto relaxed = backend_.relax_capture();
  const auto counts = static_cast<device::GroupFaults*>(backend_.allocate(sizeof seen_));
  try {
    backend_.zero(counts, sizeof seen_);
  } catch (...) {
    backend_.release(counts);
    throw;
  }
  return counts_ = counts;
}

void GroupFaultCounts::check(Stream stream) {
  if (backend_.capture_status(stream) == CaptureStatus::capturing)
    throw Error(ErrorCode::invalid_option,
                "a check waits for the stream, which is being captured; check after a replay");
  backend_.synchronize(stream);
  const std::lock_guard lock(mutex_);
  if (!counts_) return;
  device::GroupFaults counted{};
  backend_.copy_to_host(&counted, counts_, sizeof counted);
  const device::GroupFaults before = std::exchange(seen_, counted);
  const unsigned calls = counted.rows.count - before.rows.count, tiles = counted.pointer.count - before.pointer.count;
  std::string wrong;
  if (calls > 0)
    wrong = "the ends or counts of groups went backwards or out of range in " +
            how_many(calls, "call", counted.rows.group) +
            ", whose D is not what was meant: give ends that never fall, or counts, from 0 to M, or along k to K";
  if (tiles > 0)
    wrong += (wrong.empty() ? "" : "; and ") +
             ("pointers to B were null, or not the multiples that its alignment says, for " +
              how_many(tiles, "tile", counted.pointer.group) +
              ", whose products are zero: give each group with rows its B, or say what they are aligned to");
  if (!wrong.empty()) throw Error(ErrorCode::invalid_operand, wrong);
}

}  // namespace jitgemm
