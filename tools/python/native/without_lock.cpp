#include "without_lock.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace jitgemm::python {
namespace {

std::atomic<bool> ending = false;
std::atomic<int> waiting = 0;  // for the lock, or calling Python from C++, and not to be ended there
std::thread::id ender;         // of `ending`

/// Before a thread asks for the lock.
void begin_to_wait() {
  waiting.fetch_add(1);
  if (!ending.load() || std::this_thread::get_id() == ender) return;
  waiting.fetch_sub(1);
  for (;;) pause();
}

/// Called with the lock, by Python's atexit: other threads than daemons have ended. Those that wait for the lock get
/// it, what C++ has called in Python returns, and neither begins from now on.
void end() {
  ender = std::this_thread::get_id();
  ending = true;
  PyThreadState* const state = PyEval_SaveThread();
  for (int i = 0; i < 2000 && waiting.load() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(state);
}

}  // namespace

WithoutLock::WithoutLock() : state_(PyEval_SaveThread()) {}

WithoutLock::~WithoutLock() {
  begin_to_wait();
  PyEval_RestoreThread(state_);
  waiting.fetch_sub(1);
}

void WithoutLock::watch_interpreter() {
  nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function(&end));
}

WithLock::WithLock() {
  begin_to_wait();
  state_ = PyGILState_Ensure();
}

// Python code gives the lock away between two of its instructions, and wants it back: that is waiting, too.
WithLock::~WithLock() {
  PyGILState_Release(state_);
  waiting.fetch_sub(1);
}

}  // namespace jitgemm::python
