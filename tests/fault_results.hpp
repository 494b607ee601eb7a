#pragma once

#include <map>
#include <string>
#include <vector>

#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"

namespace jitgemm::test {

/// What a call may plausibly answer.
inline std::vector<int> failures_of(const std::string& function) {
  static const std::map<std::string, std::vector<int>> known{
      {"cuInit", {CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH}},
      {"cuDeviceGet", {CUDA_ERROR_INVALID_DEVICE}},
      {"cuDevicePrimaryCtxRetain", {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_DEVICE}},
      {"cuCtxGetCurrent", {CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_DEINITIALIZED}},
      {"cuCtxPushCurrent", {CUDA_ERROR_INVALID_CONTEXT}},
      {"cuCtxPopCurrent", {CUDA_ERROR_INVALID_CONTEXT}},
      {"cuModuleLoadData",
       {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}},
      {"cuModuleGetFunction", {CUDA_ERROR_NOT_FOUND}},
      {"cuFuncSetAttribute", {CUDA_ERROR_INVALID_VALUE}},
      {"cuLaunchKernelEx", {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_ILLEGAL_ADDRESS}},
      {"cuTensorMapEncodeTiled", {CUDA_ERROR_INVALID_VALUE}},
      {"cuMemAlloc", {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ILLEGAL_ADDRESS}},
      {"cuPointerGetAttributes", {CUDA_ERROR_INVALID_VALUE}},
      {"cuStreamCreate", {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}},
      {"cuStreamSynchronize", {CUDA_ERROR_ILLEGAL_ADDRESS}},
      {"cuStreamGetId", {CUDA_ERROR_INVALID_HANDLE}},
      {"cuStreamIsCapturing", {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT}},
      {"cuEventCreate", {CUDA_ERROR_OUT_OF_MEMORY}},
      {"cuEventSynchronize", {CUDA_ERROR_ILLEGAL_ADDRESS}},
      {"nvrtcCreateProgram", {NVRTC_ERROR_OUT_OF_MEMORY, NVRTC_ERROR_INTERNAL_ERROR}},
      {"nvrtcCompileProgram",
       {NVRTC_ERROR_COMPILATION, NVRTC_ERROR_OUT_OF_MEMORY, NVRTC_ERROR_INVALID_OPTION,
        NVRTC_ERROR_BUILTIN_OPERATION_FAILURE, NVRTC_ERROR_INTERNAL_ERROR}}};
  const auto found = known.find(function);
  if (found != known.end()) return found->second;
  return {function.starts_with("cu") ? int(CUDA_ERROR_UNKNOWN) : int(NVRTC_ERROR_INTERNAL_ERROR)};
}

inline std::string name_of(const std::string& function, int result) {
  if (!function.starts_with("cu")) return FakeNvrtc::api().get_error_string(nvrtcResult(result));
  const char* name = nullptr;
  FakeGpu::api().get_error_name(CUresult(result), &name);
  return name;
}

}  // namespace jitgemm::test
