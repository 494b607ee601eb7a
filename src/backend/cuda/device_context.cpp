#include "backend/cuda/device_context.hpp"

#include <algorithm>

#include "util/log.hpp"

namespace jitgemm::cuda {
namespace {

constexpr const char* way_out = "check nvidia-smi and CUDA_VISIBLE_DEVICES";

}  // namespace

DeviceContext::DeviceContext(const DriverApi& driver_api, int number) : api(driver_api) {
  int count = 0;
  check(api, api.device_get_count(&count), ErrorCode::no_device, "cuDeviceGetCount", way_out);
  if (count == 0) throw Error(ErrorCode::no_device, std::string("no CUDA device is visible; ") + way_out);
  if (number >= count) {
    throw Error(ErrorCode::invalid_option, "cuda_device=" + std::to_string(number) + " is none of the " +
                                               std::to_string(count) + " CUDA devices that are visible; give 0 to " +
                                               std::to_string(count - 1) + ", or check CUDA_VISIBLE_DEVICES");
  }
  if (number < 0) check(api, api.ctx_get_current(&context), ErrorCode::no_device, "cuCtxGetCurrent", way_out);
  if (context)
    check(api, api.ctx_get_device(&device), ErrorCode::no_device, "cuCtxGetDevice", way_out);
  else
    retain_primary(std::max(number, 0));
}

void DeviceContext::retain_primary(int number) {
  check(api, api.device_get(&device, number), ErrorCode::no_device, "cuDeviceGet", way_out);
  check(api, api.device_primary_ctx_retain(&context, device), ErrorCode::no_device, "cuDevicePrimaryCtxRetain",
        way_out);
  retained_ = true;
}

DeviceContext::~DeviceContext() {
  if (retained_) {
    report(api.device_primary_ctx_release(device), "cuDevicePrimaryCtxRelease",
           "the device's primary context stays until the process ends");
  }
}

void DeviceContext::report(CUresult result, const char* call, const char* consequence) const noexcept {
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  try {
    const bool again = reported_.exchange(true);
    logger().log(again ? spdlog::level::debug : spdlog::level::warn, "{}; {}", failure_text(api, result, call),
                 consequence);
  } catch (...) {  // no memory for the words
  }
}

int number_of(const DeviceContext& context) {
  const DriverApi& api = context.api;
  int count = 0;
  check(api, api.device_get_count(&count), ErrorCode::no_device, "cuDeviceGetCount", "check nvidia-smi");
  for (int number = 0; number < count; ++number) {
    CUdevice device = 0;
    check(api, api.device_get(&device, number), ErrorCode::no_device, "cuDeviceGet", "check nvidia-smi");
    if (device == context.device) return number;
  }
  throw Error(ErrorCode::no_device, "the Context's device is no longer listed; check nvidia-smi");
}

}  // namespace jitgemm::cuda
