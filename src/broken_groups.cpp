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
  const auto count = static_cast<unsigned*>(backend_.allocate(sizeof(unsigned)));
  try {
    backend_.zero(count, sizeof(unsigned));
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
  unsigned count = 0;
  backend_.copy_to_host(&count, count_, sizeof count);
  const unsigned calls = count - std::exchange(seen_, count);
  if (calls == 0) return;
  throw Error(
      ErrorCode::invalid_operand,
      "group_rows went backwards or out of range in " + std::to_string(calls) + (calls == 1 ? " call" : " calls") +
          ", whose D is not what was meant: give ends that never fall, or counts, from 0 to M, or along k to K");
}

}  // namespace jitgemm
