#pragma once

#include <cstddef>
#include <string>

#include "jitgemm/error.hpp"
#include "jitgemm/jitgemm.h"

namespace jitgemm::c {

/// What ends a call for a reason of the C functions' own. No std::exception, so that the library takes a callback's
/// wish to stop for nothing else on its way through.
struct Refusal {
  jitgemm_status status;
  Error error;  ///< for its text on one line
};

[[noreturn]] void refuse(jitgemm_status status, const std::string& message);

/// Fails unless there is a pointer to `name`.
template <typename T>
T& given(T* pointer, const char* name) {
  if (!pointer) refuse(JITGEMM_STATUS_INVALID_ARGUMENT, std::string(name) + " is NULL; give a pointer to one");
  return *pointer;
}

/// Fails unless there are so many `what` that one has this index.
void check_index(std::size_t index, std::size_t count, const char* what);

/// Makes the exception that is being handled the thread's last error. Throws only what ends a thread that is cancelled.
jitgemm_status keep_current_exception();

/// Runs what a C function does.
template <typename Call>
jitgemm_status guarded(Call&& call) {
  try {
    call();
    return JITGEMM_STATUS_SUCCESS;
  } catch (...) {
    return keep_current_exception();
  }
}

/// Runs a caller's callback, and ends the call if it wants that or throws. `name` is for the message.
void run_callback_erased(const char* name, int (*call)(void* closure), void* closure);
template <typename Call>
void run_callback(const char* name, Call call) {
  run_callback_erased(name, [](void* closure) { return (*static_cast<Call*>(closure))(); }, &call);
}

}  // namespace jitgemm::c
