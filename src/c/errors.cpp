#include "c/errors.hpp"

#include <cxxabi.h>
#include <pthread.h>

#include <exception>
#include <new>

#include "core/error_names.hpp"
#include "core/out_of_memory.hpp"

namespace jitgemm::c {
namespace {

struct Texts {
  jitgemm_status status = JITGEMM_STATUS_SUCCESS;
  const char* message = "";
  const char* problem = "";
  const char* config = "";
  const char* call = "";
  const char* log = "";
};

/// What a thread sees whose error there was no memory for.
const Texts& no_memory() {
  static const Texts texts{.status = JITGEMM_STATUS_OUT_OF_MEMORY, .message = out_of_memory_error().what()};
  return texts;
}

struct LastError : Texts {
  std::string own_message, own_problem, own_config, own_call, own_log;
};

/// A thread's LastError, or no_memory(). Not thread_local: that would be memory which a thread gets when it first
/// looks, or the process ends.
class Slot {
 public:
  Slot() { made_ = pthread_key_create(&key_, release) == 0; }

  const Texts& get() const {
    static constexpr Texts none;
    const void* const found = made_ ? pthread_getspecific(key_) : nullptr;
    return found ? *static_cast<const Texts*>(found) : none;
  }
  /// nullptr where there is no memory for it.
  LastError* find_or_make() const {
    if (!made_) return nullptr;
    void* const found = pthread_getspecific(key_);
    if (found && found != &no_memory()) return static_cast<LastError*>(static_cast<Texts*>(found));
    LastError* const last = new (std::nothrow) LastError;
    if (last && pthread_setspecific(key_, static_cast<Texts*>(last)) == 0) return last;
    delete last;
    pthread_setspecific(key_, &no_memory());
    return nullptr;
  }

 private:
  static void release(void* last) {
    if (last != &no_memory()) delete static_cast<LastError*>(static_cast<Texts*>(last));
  }

  pthread_key_t key_ = {};
  bool made_ = false;
};
const Slot slot;

/// As much of a text as there is memory for: the message counts more.
const char* kept(std::string& to, const std::string& text) noexcept {
  try {
    to = text;
    return to.c_str();
  } catch (...) {
    return "";
  }
}

jitgemm_status keep(jitgemm_status status, const Error& error) noexcept {
  LastError* const last = slot.find_or_make();
  if (!last) return no_memory().status;
  Texts& texts = *last;
  try {
    last->own_message = error.what();
  } catch (...) {
    texts = no_memory();
    return texts.status;
  }
  texts = {.status = status,
           .message = last->own_message.c_str(),
           .problem = kept(last->own_problem, error.problem()),
           .config = kept(last->own_config, error.config()),
           .call = kept(last->own_call, error.call()),
           .log = kept(last->own_log, error.log())};
  return status;
}

jitgemm_status status_of(ErrorCode code) { return static_cast<jitgemm_status>(static_cast<int>(code) + 1); }

/// What no function should throw.
jitgemm_status keep_unexpected(const char* what) noexcept {
  try {
    return keep(JITGEMM_STATUS_INTERNAL,
                Error(ErrorCode::internal, std::string("unexpected exception: ") + what + "; please report it"));
  } catch (...) {
    return keep(JITGEMM_STATUS_OUT_OF_MEMORY, out_of_memory_error());
  }
}

}  // namespace

void refuse(jitgemm_status status, const std::string& message) {
  throw Refusal{status, Error(ErrorCode::invalid_option, message)};
}

void check_index(std::size_t index, std::size_t count, const char* what) {
  if (index < count) return;
  refuse(JITGEMM_STATUS_INVALID_ARGUMENT, "there are " + std::to_string(count) + " " + what + ", so no number " +
                                              std::to_string(index) + "; count from 0 to less than that");
}

jitgemm_status keep_current_exception() {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return keep(refusal.status, refusal.error);
  } catch (const Error& error) {
    return keep(status_of(error.code()), error);
  } catch (const std::bad_alloc&) {
    return keep(JITGEMM_STATUS_OUT_OF_MEMORY, out_of_memory_error());
  } catch (const abi::__forced_unwind&) {  // pthread_cancel() may not be stopped
    throw;
  } catch (const std::exception& error) {
    return keep_unexpected(error.what());
  } catch (...) {
    return keep_unexpected("of an unknown type");
  }
}

void run_callback_erased(const char* name, int (*call)(void* closure), void* closure) {
  const auto stop = [name](const std::string& what) {
    refuse(JITGEMM_STATUS_INTERRUPTED,
           std::string("the ") + name + " callback " + what + "; return 0 from it to go on");
  };
  int answer = 0;
  try {
    answer = call(closure);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const std::exception& error) {
    stop(std::string("threw an exception: ") + error.what());
  } catch (...) {
    stop("threw an exception");
  }
  if (answer != 0) stop("returned " + std::to_string(answer));
}

}  // namespace jitgemm::c

using namespace jitgemm::c;

const char* jitgemm_status_name(int32_t status) {
  switch (status) {
    case JITGEMM_STATUS_SUCCESS:
      return "success";
    case JITGEMM_STATUS_INTERRUPTED:
      return "interrupted";
    case JITGEMM_STATUS_INVALID_ARGUMENT:
      return "invalid_argument";
    case JITGEMM_STATUS_BUFFER_TOO_SMALL:
      return "buffer_too_small";
    default:
      return jitgemm::name_of(status >= 1 && status <= 255 ? jitgemm::ErrorCode(status - 1) : jitgemm::ErrorCode(255));
  }
}

jitgemm_status jitgemm_last_error_status() { return slot.get().status; }
const char* jitgemm_last_error_message() { return slot.get().message; }
const char* jitgemm_last_error_problem() { return slot.get().problem; }
const char* jitgemm_last_error_config() { return slot.get().config; }
const char* jitgemm_last_error_call() { return slot.get().call; }
const char* jitgemm_last_error_log() { return slot.get().log; }
