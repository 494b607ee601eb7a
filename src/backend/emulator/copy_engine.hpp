#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace jitgemm::emulator {

/// A stream of copies, which runs beside whatever the device and others do: in order, each piece of work at a moment of
/// its own. Thread-safe.
class CopyEngine {
 public:
  CopyEngine();
  /// What was put on it has ended.
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  /// Returns what is ready when the work, and all before it, has ended.
  std::shared_future<void> put(std::function<void()> work);

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace jitgemm::emulator
