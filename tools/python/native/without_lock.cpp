#include "without_lock.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace jitgemm::python {
namespace {

std::atomic<bool> ending = false;
std::atomic<int> waiting = 0;  // for the lock, and not to be ended there
std::thread::id ender;         // of `ending`

/// Before a thread asks for the lock, and after it has it.
class Waiting {
 public:
  Waiting() {
    waiting.fetch_add(1);
    if (!ending.load() || std::this_thread::get_id() == ender) return;
    waiting.fetch_sub(1);
    for (;;) pause();
  }
  ~Waiting() { waiting.fetch_sub(1); }
};

/// Called with the lock, by Python's atexit: other threads than daemons have ended. Those that wait for the lock get
/// it, and none waits for it from now on.
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
  const Waiting for_lock;
  PyEval_RestoreThread(state_);
}

void WithoutLock::watch_interpreter() {
  nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function(&end));
}

WithLock::WithLock() {
  const Waiting for_lock;
  state_ = PyGILState_Ensure();
}

WithLock::~WithLock() { PyGILState_Release(state_); }

}  // namespace jitgemm::python
