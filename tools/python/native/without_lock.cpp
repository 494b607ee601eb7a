#include "without_lock.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace jitgemm::python {
namespace {

std::atomic<bool> ending = false;
std::atomic<int> working = 0;  // threads in C++ without the lock, or calling Python from there
std::thread::id ender;         // of `ending`

thread_local bool given_away = false;  // this thread has a state of Python's, and not the lock

/// Of a thread that does not have the lock, and counts as working.
void stay_if_ending() {
  if (!ending.load() || std::this_thread::get_id() == ender) return;
  working.fetch_sub(1);
  for (;;) pause();
}

/// Called with the lock, by Python's atexit: other threads than daemons have ended. Those that work get to where they
/// stay, or to Python code; in the midst of C++ they would be ended with the interpreter, or lose what it uses.
void end() {
  ender = std::this_thread::get_id();
  ending = true;
  PyThreadState* const state = PyEval_SaveThread();
  for (int i = 0; i < 500 && working.load() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(state);
}

}  // namespace

WithoutLock::WithoutLock() {
  working.fetch_add(1);
  state_ = PyEval_SaveThread();
  given_away = true;
  stay_if_ending();
}

WithoutLock::~WithoutLock() {
  stay_if_ending();
  PyEval_RestoreThread(state_);
  given_away = false;
  working.fetch_sub(1);
}

void WithoutLock::watch_interpreter() {
  nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function(&end));
}

WithLock::WithLock() : was_given_away_(given_away), taken_(given_away || !PyGILState_GetThisThreadState()) {
  if (!taken_) return;
  if (!was_given_away_) working.fetch_add(1);  // else it counts already
  stay_if_ending();
  state_ = PyGILState_Ensure();
  given_away = false;
}

WithLock::~WithLock() {
  if (!taken_) return;
  given_away = was_given_away_;
  PyGILState_Release(state_);
  if (!was_given_away_) working.fetch_sub(1);
}

}  // namespace jitgemm::python
