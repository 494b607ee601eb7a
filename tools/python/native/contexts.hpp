#pragma once

#include <memory>
#include <utility>

#include "array.hpp"
#include "jitgemm/context.hpp"

namespace jitgemm::python {

/// A Context as Python holds it.
class ContextHandle {
 public:
  /// `options.progress` is replaced by one that lets Ctrl-C end a measurement.
  /// `fallback`: the function that `options.fallback` calls if it is still there, or null.
  explicit ContextHandle(ContextOptions options, std::shared_ptr<nb::object> fallback = nullptr);
  /// Waits for what the device still does with it.
  ~ContextHandle();
  ContextHandle(const ContextHandle&) = delete;
  ContextHandle& operator=(const ContextHandle&) = delete;

  Context& operator*() { return *context_; }
  Context* operator->() { return context_.get(); }
  /// Throws ValueError where arrays of this place are none of its memory.
  void require(const Place& place) const;
  Device device() const { return device_; }
  int number() const { return number_; }

  // See collected.hpp.
  template <typename Visit>
  void each_held(const Visit& visit) const {
    if (fallback_) visit(*fallback_);
  }
  void drop_held() {
    if (fallback_) const nb::object dropped = std::move(*fallback_);
  }

 private:
  std::shared_ptr<nb::object> fallback_;
  std::unique_ptr<Context> context_;
  Device device_;
  int number_ = 0;  // of the CUDA device
};

/// The one that serves arrays there when no other is named; made on first use, and never destroyed. Says once that the
/// CPU is an emulator.
ContextHandle& default_context(const Place& place);
/// The one that is given, else the default one. Throws TypeError, and ValueError where arrays of this place are none of
/// its memory.
ContextHandle& context_for(nb::handle context, const Place& place);

/// Makes a context that one from now on. It lives as long as the process.
void set_default_context(nb::handle context);

/// torch's current device where the program has it, else the first.
int current_cuda_device();

/// Throws what a signal handler of Python's has raised, KeyboardInterrupt say. Takes Python's lock.
void check_signals();

}  // namespace jitgemm::python
