#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cuda/driver_api.hpp"
#include "backend/cuda/nvrtc.hpp"

namespace jitgemm::test {

/// Counts the calls of every function of both tables, and makes one of them fail instead.
struct Faults {
  struct Fault {
    std::string function;
    bool helper_thread = false;  ///< counted apart, since threads do not take turns
    int occurrence = 1;          ///< which of the calls fails
    int result = 0;
  };
  using Key = std::pair<std::string, bool>;
  static inline std::mutex mutex;
  static inline std::map<Key, int> counts;
  static inline std::map<std::string, int> always;  ///< what fails each time, beside
  static inline std::optional<Fault> fault;
  static inline bool fired = false;
  static inline std::thread::id main_thread;

  static void reset() {
    counts.clear();
    always.clear();
    fault.reset();
    fired = false;
    main_thread = std::this_thread::get_id();
  }
  static void arm(const Fault& next) {
    counts.clear();
    fired = false;
    fault = next;
  }

  static std::optional<int> next(const char* function) {
    const Key key{function, std::this_thread::get_id() != main_thread};
    const std::lock_guard lock(mutex);
    const int count = ++counts[key];
    if (fault && fault->function == key.first && fault->helper_thread == key.second && fault->occurrence == count) {
      fired = true;
      return fault->result;
    }
    const auto found = always.find(key.first);
    return found == always.end() ? std::nullopt : std::optional(found->second);
  }
};

template <std::size_t size>
struct FunctionName {
  constexpr FunctionName(const char (&literal)[size]) { std::copy_n(literal, size, text); }
  char text[size];
};

/// The functions that a wrapped table leads to when they do not fail.
template <typename Api>
inline Api unwrapped;

template <FunctionName name, auto member>
struct Function;
template <FunctionName name, typename Api, typename Result, typename... Arguments, Result (*Api::*member)(Arguments...)>
struct Function<name, member> {
  static constexpr const char* text = name.text;
  static constexpr bool can_fail = std::is_enum_v<Result>;
  static Result call(Arguments... arguments) {
    const std::optional<int> failure = Faults::next(name.text);
    if constexpr (can_fail) {
      if (failure) return Result(*failure);
    }
    return (unwrapped<Api>.*member)(arguments...);
  }
  static void wrap(Api& api) { api.*member = &call; }
  static void* symbol() { return reinterpret_cast<void*>(&call); }
};

using D = cuda::DriverApi;
using N = cuda::NvrtcApi;

using DriverFunctions = std::tuple<
    Function<"cuInit", &D::init>, Function<"cuDriverGetVersion", &D::driver_get_version>,
    Function<"cuGetErrorName", &D::get_error_name>, Function<"cuGetErrorString", &D::get_error_string>,
    Function<"cuDeviceGetCount", &D::device_get_count>, Function<"cuDeviceGet", &D::device_get>,
    Function<"cuDeviceGetName", &D::device_get_name>, Function<"cuDeviceGetAttribute", &D::device_get_attribute>,
    Function<"cuDeviceTotalMem", &D::device_total_mem>,
    Function<"cuDevicePrimaryCtxRetain", &D::device_primary_ctx_retain>,
    Function<"cuDevicePrimaryCtxRelease", &D::device_primary_ctx_release>,
    Function<"cuCtxGetCurrent", &D::ctx_get_current>, Function<"cuCtxPushCurrent", &D::ctx_push_current>,
    Function<"cuCtxPopCurrent", &D::ctx_pop_current>, Function<"cuCtxGetDevice", &D::ctx_get_device>,
    Function<"cuModuleLoadData", &D::module_load_data>, Function<"cuModuleUnload", &D::module_unload>,
    Function<"cuModuleGetFunction", &D::module_get_function>, Function<"cuFuncSetAttribute", &D::func_set_attribute>,
    Function<"cuFuncGetAttribute", &D::func_get_attribute>, Function<"cuLaunchKernelEx", &D::launch_kernel_ex>,
    Function<"cuOccupancyMaxActiveClusters", &D::occupancy_max_active_clusters>,
    Function<"cuOccupancyMaxActiveBlocksPerMultiprocessor", &D::occupancy_max_active_blocks>,
    Function<"cuTensorMapEncodeTiled", &D::tensor_map_encode_tiled>, Function<"cuMemAlloc", &D::mem_alloc>,
    Function<"cuMemFree", &D::mem_free>, Function<"cuMemsetD8Async", &D::memset_d8_async>,
    Function<"cuMemcpyHtoDAsync", &D::memcpy_htod_async>, Function<"cuMemcpyDtoHAsync", &D::memcpy_dtoh_async>,
    Function<"cuMemcpyDtoDAsync", &D::memcpy_dtod_async>, Function<"cuMemcpy2DAsync", &D::memcpy_2d_async>,
    Function<"cuMemHostAlloc", &D::mem_host_alloc>, Function<"cuMemFreeHost", &D::mem_free_host>,
    Function<"cuIpcGetMemHandle", &D::ipc_get_mem_handle>, Function<"cuIpcOpenMemHandle", &D::ipc_open_mem_handle>,
    Function<"cuIpcCloseMemHandle", &D::ipc_close_mem_handle>,
    Function<"cuPointerGetAttributes", &D::pointer_get_attributes>,
    Function<"cuMemPoolGetAccess", &D::mem_pool_get_access>, Function<"cuMemGetAccess", &D::mem_get_access>,
    Function<"cuStreamCreate", &D::stream_create>, Function<"cuStreamDestroy", &D::stream_destroy>,
    Function<"cuStreamQuery", &D::stream_query>, Function<"cuStreamWaitEvent", &D::stream_wait_event>,
    Function<"cuStreamSynchronize", &D::stream_synchronize>, Function<"cuStreamGetId", &D::stream_get_id>,
    Function<"cuStreamIsCapturing", &D::stream_is_capturing>,
    Function<"cuStreamGetCaptureInfo_v2", &D::stream_get_capture_info_v2>,
    Function<"cuStreamGetCaptureInfo_v3", &D::stream_get_capture_info_v3>,
    Function<"cuGraphNodeGetDependencies", &D::graph_node_get_dependencies>,
    Function<"cuGraphNodeGetDependencies_v2", &D::graph_node_get_dependencies_v2>,
    Function<"cuStreamBeginCapture", &D::stream_begin_capture>, Function<"cuStreamEndCapture", &D::stream_end_capture>,
    Function<"cuGraphInstantiateWithFlags", &D::graph_instantiate>, Function<"cuGraphLaunch", &D::graph_launch>,
    Function<"cuGraphDestroy", &D::graph_destroy>, Function<"cuGraphExecDestroy", &D::graph_exec_destroy>,
    Function<"cuStreamUpdateCaptureDependencies_v2", &D::stream_update_capture_dependencies_v2>,
    Function<"cuGraphNodeGetType", &D::graph_node_get_type>,
    Function<"cuGraphKernelNodeGetParams", &D::graph_kernel_node_get_params>,
    Function<"cuUserObjectCreate", &D::user_object_create>, Function<"cuUserObjectRelease", &D::user_object_release>,
    Function<"cuGraphRetainUserObject", &D::graph_retain_user_object>,
    Function<"cuThreadExchangeStreamCaptureMode", &D::thread_exchange_stream_capture_mode>,
    Function<"cuEventCreate", &D::event_create>, Function<"cuEventDestroy", &D::event_destroy>,
    Function<"cuEventRecord", &D::event_record>, Function<"cuEventSynchronize", &D::event_synchronize>,
    Function<"cuEventQuery", &D::event_query>, Function<"cuEventElapsedTime", &D::event_elapsed_time>>;
static_assert(sizeof(D) == std::tuple_size_v<DriverFunctions> * sizeof(void*), "a function of the driver is missing");

using NvrtcFunctions =
    std::tuple<Function<"nvrtcVersion", &N::version>, Function<"nvrtcGetErrorString", &N::get_error_string>,
               Function<"nvrtcCreateProgram", &N::create_program>, Function<"nvrtcDestroyProgram", &N::destroy_program>,
               Function<"nvrtcCompileProgram", &N::compile_program>,
               Function<"nvrtcGetProgramLogSize", &N::get_program_log_size>,
               Function<"nvrtcGetProgramLog", &N::get_program_log>, Function<"nvrtcGetCUBINSize", &N::get_cubin_size>,
               Function<"nvrtcGetCUBIN", &N::get_cubin>, Function<"nvrtcGetPTXSize", &N::get_ptx_size>,
               Function<"nvrtcGetPTX", &N::get_ptx>>;
static_assert(offsetof(N, name) == std::tuple_size_v<NvrtcFunctions> * sizeof(void*), "a function of NVRTC is missing");

/// Calls visit(function) for each function of a table.
template <typename Functions, typename Visit>
void for_each_function(Visit visit) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (visit(std::tuple_element_t<i, Functions>{}), ...);
  }(std::make_index_sequence<std::tuple_size_v<Functions>>());
}

/// What older drivers may lack.
inline bool is_optional(const std::string& function) {
  return function == "cuStreamGetCaptureInfo_v3" || function == "cuGraphNodeGetDependencies_v2" ||
         function == "cuStreamUpdateCaptureDependencies_v2";
}

/// What no Context calls, but a TensorParallel: test_tensor_parallel_cuda.cpp has each of its calls fail.
inline bool is_of_ranks(const std::string& function) {
  return function == "cuMemcpy2DAsync" || function == "cuStreamQuery" || function == "cuStreamWaitEvent" ||
         function == "cuMemHostAlloc" || function == "cuMemFreeHost" || function.starts_with("cuIpc");
}

/// The wrapped functions as a library has them, by names such as cuMemAlloc_v2; one may be missing.
template <typename Functions>
auto symbols(std::string missing = {}) {
  return [missing](const std::string& name) -> void* {
    const auto find = [&](const std::string& text) {
      void* found = nullptr;
      for_each_function<Functions>([&](auto function) {
        if (text == function.text) found = function.symbol();
      });
      return found;
    };
    const std::string text = !find(name) && name.ends_with("_v2") ? name.substr(0, name.size() - 3) : name;
    return text == missing ? nullptr : find(text);
  };
}

}  // namespace jitgemm::test
