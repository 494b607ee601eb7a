#pragma once

#include <nanobind/nanobind.h>

namespace jitgemm::python {

/// Lets other threads run Python while it lives. Unlike nanobind's, it does not want the lock back on a thread that the
/// interpreter's end has overtaken: up to Python 3.13 such a daemon thread would be ended in the middle of C++, which
/// ends the process. It stays where it is instead, as Python 3.14 has it.
class WithoutLock {
 public:
  WithoutLock();
  ~WithoutLock();
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

  /// Once, when the module is made: tells it when the interpreter ends.
  static void watch_interpreter();

 private:
  PyThreadState* state_;
};

/// Python's lock on a thread that may not have it; where the interpreter has ended, that thread stays here.
class WithLock {
 public:
  WithLock();
  ~WithLock();
  WithLock(const WithLock&) = delete;
  WithLock& operator=(const WithLock&) = delete;

 private:
  bool was_given_away_, taken_;
  PyGILState_STATE state_;
};

}  // namespace jitgemm::python
