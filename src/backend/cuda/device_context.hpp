#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/driver_api.hpp"

namespace jitgemm::cuda {

/// Makes a context the thread's current one while it lives, unless it is already.
class CurrentContext {
 public:
  CurrentContext(const DriverApi& api, CUcontext context) : api_(api) {
    CUcontext current = nullptr;
    check(api, api.ctx_get_current(&current), ErrorCode::launch_failed, "cuCtxGetCurrent",
          "is the driver shutting down?");
    if (current == context) return;
    check(api, api.ctx_push_current(context), ErrorCode::launch_failed, "cuCtxPushCurrent",
          "keep the CUDA context alive for as long as the jitgemm::Context that was made on it");
    pushed_ = true;
  }
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (pushed_) api_.ctx_pop_current(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const DriverApi& api_;
  bool pushed_ = false;
};

/// Lets this thread do what a capture in progress, its own or another thread's, would forbid.
class Relaxed final : public Backend::RelaxedCapture {
 public:
  explicit Relaxed(const DriverApi& api) : api_(api) { api_.thread_exchange_stream_capture_mode(&mode_); }
  ~Relaxed() override { api_.thread_exchange_stream_capture_mode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const DriverApi& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then the mode before
};

/// The context that work is done in: the one current on the thread that asks, else the first device's primary one.
class DeviceContext {
 public:
  explicit DeviceContext(const DriverApi& api) : api_(api) {
    const char* way_out = "check nvidia-smi and CUDA_VISIBLE_DEVICES";
    int count = 0;
    check(api, api.device_get_count(&count), ErrorCode::no_device, "cuDeviceGetCount", way_out);
    if (count == 0) throw Error(ErrorCode::no_device, std::string("no CUDA device is visible; ") + way_out);
    check(api, api.ctx_get_current(&context), ErrorCode::no_device, "cuCtxGetCurrent", way_out);
    if (context) {
      check(api, api.ctx_get_device(&device), ErrorCode::no_device, "cuCtxGetDevice", way_out);
    } else {
      check(api, api.device_get(&device, 0), ErrorCode::no_device, "cuDeviceGet", way_out);
      check(api, api.device_primary_ctx_retain(&context, device), ErrorCode::no_device, "cuDevicePrimaryCtxRetain",
            way_out);
      retained_ = true;
    }
  }
  ~DeviceContext() {
    if (retained_) api_.device_primary_ctx_release(device);
  }
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  CUcontext context = nullptr;
  CUdevice device = 0;

 private:
  const DriverApi& api_;
  bool retained_ = false;
};

/// For destructors: `call` in the context, if there still is one. After the driver has shut down every call answers
/// CUDA_ERROR_DEINITIALIZED and there is nothing left to free.
template <typename Call>
void try_in(const DriverApi& api, CUcontext context, Call&& call) noexcept {
  CUcontext current = nullptr;
  if (api.ctx_get_current(&current) != CUDA_SUCCESS) return;
  if (current != context && api.ctx_push_current(context) != CUDA_SUCCESS) return;
  {
    Relaxed relaxed(api);
    call();
  }
  if (current != context) api.ctx_pop_current(&current);
}

}  // namespace jitgemm::cuda
