#pragma once

#include <atomic>

#include "backend/backend.hpp"
#include "backend/cuda/driver_api.hpp"

namespace jitgemm::cuda {

/// The context that work is done in: as ContextOptions::cuda_device has it.
class DeviceContext {
 public:
  DeviceContext(const DriverApi& api, int number);
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  /// For destructors: `call`, a driver call of this name, in the context. What fails is logged.
  template <typename Call>
  void attempt(const char* name, Call&& call) const noexcept;

  /// Logs a failure that nobody is there to catch: the first one, the others at debug level. After the driver has shut
  /// down every call answers CUDA_ERROR_DEINITIALIZED, and there is nothing left to free.
  void report(CUresult result, const char* call, const char* consequence) const noexcept;

  const DriverApi& api;
  CUcontext context = nullptr;
  CUdevice device = 0;

 private:
  void retain_primary(int number);

  bool retained_ = false;
  mutable std::atomic<bool> reported_ = false;
};

/// Among the devices that the driver counts. Throws Error{no_device}.
int number_of(const DeviceContext& context);

/// Makes a context the thread's current one while it lives, unless it is already.
class CurrentContext {
 public:
  explicit CurrentContext(const DeviceContext& own) : own_(own) {
    CUcontext current = nullptr;
    check(own.api, own.api.ctx_get_current(&current), ErrorCode::launch_failed, "cuCtxGetCurrent",
          "make no calls once the process is ending");
    if (current == own.context) return;
    check(own.api, own.api.ctx_push_current(own.context), ErrorCode::launch_failed, "cuCtxPushCurrent",
          "keep the CUDA context alive for as long as the jitgemm::Context that was made on it");
    pushed_ = true;
  }
  ~CurrentContext() {
    if (CUcontext popped = nullptr; pushed_) {
      own_.report(own_.api.ctx_pop_current(&popped), "cuCtxPopCurrent",
                  "this thread's current context may be another one now: set it with cuCtxSetCurrent");
    }
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const DeviceContext& own_;
  bool pushed_ = false;
};

/// Lets this thread do what a capture in progress, its own or another thread's, would forbid.
class Relaxed final : public Backend::RelaxedCapture {
 public:
  explicit Relaxed(const DeviceContext& own) : own_(own) {
    check(own.api, own.api.thread_exchange_stream_capture_mode(&mode_), ErrorCode::launch_failed,
          "cuThreadExchangeStreamCaptureMode", "update the driver");
  }
  ~Relaxed() override {
    own_.report(own_.api.thread_exchange_stream_capture_mode(&mode_), "cuThreadExchangeStreamCaptureMode",
                "this thread's capture mode stays relaxed: set it yourself before a capture");
  }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const DeviceContext& own_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then the mode before
};

template <typename Call>
void DeviceContext::attempt(const char* name, Call&& call) const noexcept {
  constexpr const char* leak = "what it was to free stays until the CUDA context is destroyed";
  try {
    const CurrentContext current(*this);
    const Relaxed relaxed(*this);
    report(call(), name, leak);
  } catch (const DriverError& error) {
    report(error.result, error.call().c_str(), leak);
  } catch (...) {  // no memory for the words
  }
}

}  // namespace jitgemm::cuda
