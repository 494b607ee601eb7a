#pragma once

#include <dlfcn.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.hpp"
#include "core/problem.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "reference.hpp"
#include "sample_configs.hpp"
#include "sandbox.hpp"

namespace jitgemm::test {

inline constexpr const char* no_gpu = "no CUDA device";

/// What only tests need of the driver. The names are those that every driver since CUDA 12.0 has.
struct GraphApi {
  CUresult (*ctx_create)(CUcontext*, unsigned, CUdevice);
  CUresult (*ctx_destroy)(CUcontext);
  CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
  CUresult (*end_capture)(CUstream, CUgraph*);
  CUresult (*instantiate)(CUgraphExec*, CUgraph, unsigned long long);
  CUresult (*launch)(CUgraphExec, CUstream);
  CUresult (*exec_destroy)(CUgraphExec);
  CUresult (*graph_destroy)(CUgraph);
  CUresult (*mem_alloc_async)(CUdeviceptr*, std::size_t, CUstream);
  CUresult (*mem_free_async)(CUdeviceptr, CUstream);
  CUresult (*memcpy_dtod_async)(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);
  CUresult (*stream_wait_event)(CUstream, CUevent, unsigned);
  CUresult (*mem_alloc_host)(void**, std::size_t);
  CUresult (*mem_free_host)(void*);
  CUresult (*mem_alloc_managed)(CUdeviceptr*, std::size_t, unsigned);
  CUresult (*enable_peer_access)(CUcontext, unsigned);
  CUresult (*disable_peer_access)(CUcontext);
  CUresult (*default_mem_pool)(CUmemoryPool*, CUdevice);
  CUresult (*mem_pool_set_access)(CUmemoryPool, const CUmemAccessDesc*, std::size_t);
  CUresult (*mem_create)(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*, unsigned long long);
  CUresult (*mem_release)(CUmemGenericAllocationHandle);
  CUresult (*mem_reserve)(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long);
  CUresult (*mem_address_free)(CUdeviceptr, std::size_t);
  CUresult (*mem_map)(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long);
  CUresult (*mem_unmap)(CUdeviceptr, std::size_t);
  CUresult (*mem_set_access)(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t);

  GraphApi() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    bind(library, ctx_create, "cuCtxCreate_v2");
    bind(library, ctx_destroy, "cuCtxDestroy_v2");
    bind(library, begin_capture, "cuStreamBeginCapture_v2");
    bind(library, end_capture, "cuStreamEndCapture");
    bind(library, instantiate, "cuGraphInstantiateWithFlags");
    bind(library, launch, "cuGraphLaunch");
    bind(library, exec_destroy, "cuGraphExecDestroy");
    bind(library, graph_destroy, "cuGraphDestroy");
    bind(library, mem_alloc_async, "cuMemAllocAsync");
    bind(library, mem_free_async, "cuMemFreeAsync");
    bind(library, memcpy_dtod_async, "cuMemcpyDtoDAsync_v2");
    bind(library, stream_wait_event, "cuStreamWaitEvent");
    bind(library, mem_alloc_host, "cuMemAllocHost_v2");
    bind(library, mem_free_host, "cuMemFreeHost");
    bind(library, mem_alloc_managed, "cuMemAllocManaged");
    bind(library, enable_peer_access, "cuCtxEnablePeerAccess");
    bind(library, disable_peer_access, "cuCtxDisablePeerAccess");
    bind(library, default_mem_pool, "cuDeviceGetDefaultMemPool");
    bind(library, mem_pool_set_access, "cuMemPoolSetAccess");
    bind(library, mem_create, "cuMemCreate");
    bind(library, mem_release, "cuMemRelease");
    bind(library, mem_reserve, "cuMemAddressReserve");
    bind(library, mem_address_free, "cuMemAddressFree");
    bind(library, mem_map, "cuMemMap");
    bind(library, mem_unmap, "cuMemUnmap");
    bind(library, mem_set_access, "cuMemSetAccess");
  }

 private:
  template <typename Function>
  static void bind(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (!function) throw std::runtime_error(std::string("the driver has no ") + name);
  }
};

inline void require(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA error " + std::to_string(int(result)));
}

inline std::vector<KernelConfig> both_main_loops(const Backend& backend) {
  std::vector<KernelConfig> configs = {sm80_config};
  if (backend.device().has_wgmma()) configs.push_back(with_schedule(sm90_config, Schedule::persistent, 1, 132));
  return configs;
}

/// f16 matrices on the device, with a copy on the host.
class DeviceOperands {
 public:
  DeviceOperands(Backend& backend, const Problem& problem, std::uint64_t seed = 1)
      : backend_(backend), problem_(normalise(problem)) {
    Random random(seed);
    operands.a = filled(random, problem_.m * problem_.k, host_.a);
    operands.b = filled(random, problem_.k * problem_.n, host_.b);
    d_.resize(std::size_t(problem_.m * problem_.n) * size_of(problem_.d.type));
    operands.d = allocate(d_.size());
    poison();
  }
  ~DeviceOperands() {
    for (void* memory : device_memory_) backend_.release(memory);
  }
  DeviceOperands(const DeviceOperands&) = delete;
  DeviceOperands& operator=(const DeviceOperands&) = delete;

  void* allocate(std::size_t bytes) { return device_memory_.emplace_back(backend_.allocate(bytes)); }
  void poison() {
    std::fill(d_.begin(), d_.end(), '\xff');
    backend_.copy_to_device(operands.d, d_.data(), d_.size());
  }
  /// The caller has synchronised the stream.
  const std::string& d() {
    backend_.copy_to_host(d_.data(), operands.d, d_.size());
    return d_;
  }
  std::string violation(MainLoop main_loop) {
    if (expected_.d.empty()) expected_ = reference(problem_, host_, main_loop);
    return test::violation(expected_, problem_, d().data());
  }

  Operands operands;

 private:
  void* filled(Random& random, std::int64_t elements, const void*& host) {
    std::string& memory = *host_memory_.emplace_back(std::make_unique<std::string>(elements * 2, '\0'));
    for (std::int64_t i = 0; i < elements; ++i) store(2 * random.uniform() - 1, memory.data(), i, f16);
    host = memory.data();
    void* device = allocate(memory.size());
    backend_.copy_to_device(device, memory.data(), memory.size());
    return device;
  }

  Backend& backend_;
  Problem problem_;
  Operands host_;
  Reference expected_;
  std::string d_;
  std::vector<std::unique_ptr<std::string>> host_memory_;
  std::vector<void*> device_memory_;
};

class OwnStream {
 public:
  explicit OwnStream(Backend& backend) : backend_(backend), stream_(backend.create_stream()) {}
  ~OwnStream() { backend_.destroy_stream(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator Stream() const { return stream_; }

 private:
  Backend& backend_;
  Stream stream_;
};

/// The primary context of a device, the first one by default, current while this lives.
class PrimaryContext {
 public:
  explicit PrimaryContext(int ordinal = 0) {
    require(cuda::driver().device_get(&device_, ordinal));
    require(cuda::driver().device_primary_ctx_retain(&context_, device_));
    require(cuda::driver().ctx_push_current(context_));
  }
  ~PrimaryContext() {
    CUcontext popped = nullptr;
    cuda::driver().ctx_pop_current(&popped);
    cuda::driver().device_primary_ctx_release(device_);
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  operator CUcontext() const { return context_; }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

inline ContextOptions options_in(const TemporaryDirectory& cache) {
  return {.tuning = Tuning::off, .cache_dir = cache.path().string()};
}

}  // namespace jitgemm::test
