#include "broken_groups.hpp"

#include <string>
#include <utility>

#include "jitgemm/error.hpp"

namespace jitgemm {

unsigned* BrokenGroups::count() {
  if (unsigned* const count = count_) return count;
  const std::lock_guard lock(mutex_);
  if (unsigned* const count = count_) return count;
  const auto relaxed = backend_.relax_capture();
  const auto count = static_cast<unsigned*>(backend_.allocate(sizeof seen_));
  try {
    backend_.zero(count, sizeof seen_);
  } catch (...) {
    backend_.release(count);
    throw;
  }
  return count_ = count;
}

void BrokenGroups::check(Stream stream) {
  if (backend_.capture_status(stream) == CaptureStatus::capturing)
    throw Error(ErrorCode::invalid_option,
                "a check waits for the stream, which is being captured; check after a replay");
  backend_.synchronize(stream);
  const std::lock_guard lock(mutex_);
  if (!count_) return;
  std::array<unsigned, 4> counted{};
  backend_.copy_to_host(counted.data(), count_, sizeof counted);
  const std::array<unsigned, 4> before = std::exchange(seen_, counted);
  const unsigned calls = counted[0] - before[0], tiles = counted[1] - before[1];
  const auto some = [](unsigned number, const std::string& one, unsigned group) {
    return std::to_string(number) + one + (number == 1 ? " (" : "s (the last ") + "of group " + std::to_string(group) +
           ")";
  };
  std::string wrong;
  if (calls > 0)
    wrong = "group_rows (offs or counts in Python) went backwards or out of range in " +
            some(calls, " call", counted[2]) +
            ", whose D is not what was meant: give ends that never fall, or counts, from 0 to M, or along k to K";
  if (tiles > 0)
    wrong += (wrong.empty() ? "" : "; and ") +
             ("pointers to B were null, or not the multiples that its alignment says, for " +
              some(tiles, " tile", counted[3]) +
              ", whose products are zero: give each group with rows its B, or say what they are aligned to");
  if (!wrong.empty()) throw Error(ErrorCode::invalid_operand, wrong);
}

}  // namespace jitgemm
