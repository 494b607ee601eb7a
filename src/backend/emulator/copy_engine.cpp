#include "backend/emulator/copy_engine.hpp"

#include <utility>

namespace jitgemm::emulator {

CopyEngine::CopyEngine() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

CopyEngine::~CopyEngine() = default;  // asks the thread to stop, and waits for it

std::shared_future<void> CopyEngine::put(std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  std::shared_future<void> ended = task.get_future().share();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return ended;
}

void CopyEngine::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !tasks_.empty(); })) {
    std::packaged_task<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
  // Of tasks that nobody waits for any more, what is left.
  for (; !tasks_.empty(); tasks_.pop_front()) tasks_.front()();
}

}  // namespace jitgemm::emulator
