#include "device.hpp"

#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace ab {
namespace {

void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(call) + " failed: CUDA error " + std::to_string(int(result)));
}

/// Of the driver, by the names that every one since CUDA 12.0 has.
struct Driver {
  CUresult (*init)(unsigned);
  CUresult (*primary_retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*mem_alloc)(CUdeviceptr*, std::size_t);
  CUresult (*to_device)(CUdeviceptr, const void*, std::size_t);
  CUresult (*to_host)(void*, CUdeviceptr, std::size_t);
  CUresult (*stream_create)(CUstream*, unsigned);
  CUresult (*stream_synchronize)(CUstream);
  CUresult (*event_create)(CUevent*, unsigned);
  CUresult (*event_record)(CUevent, CUstream);
  CUresult (*event_synchronize)(CUevent);
  CUresult (*event_elapsed)(float*, CUevent, CUevent);
  CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
  CUresult (*end_capture)(CUstream, CUgraph*);
  CUresult (*instantiate)(CUgraphExec*, CUgraph, unsigned long long);
  CUresult (*graph_launch)(CUgraphExec, CUstream);
  CUresult (*graph_destroy)(CUgraph);
  CUresult (*exec_destroy)(CUgraphExec);

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) throw std::runtime_error("no CUDA driver: use --emulator to try the steps");
    const auto bind = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (!function) throw std::runtime_error(std::string("the driver has no ") + name + ": update it");
    };
    bind(init, "cuInit");
    bind(primary_retain, "cuDevicePrimaryCtxRetain");
    bind(set_current, "cuCtxSetCurrent");
    bind(mem_alloc, "cuMemAlloc_v2");
    bind(to_device, "cuMemcpyHtoD_v2");
    bind(to_host, "cuMemcpyDtoH_v2");
    bind(stream_create, "cuStreamCreate");
    bind(stream_synchronize, "cuStreamSynchronize");
    bind(event_create, "cuEventCreate");
    bind(event_record, "cuEventRecord");
    bind(event_synchronize, "cuEventSynchronize");
    bind(event_elapsed, "cuEventElapsedTime");
    bind(begin_capture, "cuStreamBeginCapture_v2");
    bind(end_capture, "cuStreamEndCapture");
    bind(instantiate, "cuGraphInstantiateWithFlags");
    bind(graph_launch, "cuGraphLaunch");
    bind(graph_destroy, "cuGraphDestroy");
    bind(exec_destroy, "cuGraphExecDestroy");
  }
};

class CudaDevice final : public Device {
 public:
  CudaDevice() {
    check(driver_.init(0), "cuInit");
    check(driver_.primary_retain(&context_, 0), "cuDevicePrimaryCtxRetain");
    make_current();
    check(driver_.event_create(&begin_, 0), "cuEventCreate");
    check(driver_.event_create(&end_, 0), "cuEventCreate");
  }
  const char* kind() const override { return "cuda"; }
  void make_current() override { check(driver_.set_current(context_), "cuCtxSetCurrent"); }
  std::byte* allocate(std::size_t bytes) override {
    CUdeviceptr memory = 0;
    check(driver_.mem_alloc(&memory, bytes), "cuMemAlloc");
    return reinterpret_cast<std::byte*>(memory);
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    check(driver_.to_device(reinterpret_cast<CUdeviceptr>(to), from, bytes), "cuMemcpyHtoD");
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    check(driver_.to_host(to, reinterpret_cast<CUdeviceptr>(from), bytes), "cuMemcpyDtoH");
  }
  CUstream create_stream() override {
    CUstream stream = nullptr;
    check(driver_.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
  }
  void synchronize(CUstream stream) override { check(driver_.stream_synchronize(stream), "cuStreamSynchronize"); }

  std::unique_ptr<Graph> capture(CUstream stream, const std::function<void()>& enqueue) override {
    check(driver_.begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    try {
      enqueue();
    } catch (...) {
      driver_.end_capture(stream, &graph);
      if (graph) driver_.graph_destroy(graph);
      throw;
    }
    check(driver_.end_capture(stream, &graph), "cuStreamEndCapture");
    const CUresult instantiated = driver_.instantiate(&exec, graph, 0);
    driver_.graph_destroy(graph);
    check(instantiated, "cuGraphInstantiate");
    return std::make_unique<CudaGraph>(*this, stream, exec);
  }

 private:
  class CudaGraph final : public Graph {
   public:
    CudaGraph(CudaDevice& device, CUstream stream, CUgraphExec exec) : device_(device), stream_(stream), exec_(exec) {}
    ~CudaGraph() override { device_.driver_.exec_destroy(exec_); }
    CudaGraph(const CudaGraph&) = delete;
    CudaGraph& operator=(const CudaGraph&) = delete;
    double replay_us() override {
      const Driver& driver = device_.driver_;
      check(driver.event_record(device_.begin_, stream_), "cuEventRecord");
      check(driver.graph_launch(exec_, stream_), "cuGraphLaunch");
      check(driver.event_record(device_.end_, stream_), "cuEventRecord");
      check(driver.event_synchronize(device_.end_), "cuEventSynchronize");
      float milliseconds = 0;
      check(driver.event_elapsed(&milliseconds, device_.begin_, device_.end_), "cuEventElapsedTime");
      return 1e3 * double(milliseconds);
    }

   private:
    CudaDevice& device_;
    CUstream stream_;
    CUgraphExec exec_;
  };

  Driver driver_;
  CUcontext context_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
};

class HostDevice final : public Device {
 public:
  const char* kind() const override { return "emulator"; }
  void make_current() override {}
  std::byte* allocate(std::size_t bytes) override {
    return static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  CUstream create_stream() override { return reinterpret_cast<CUstream>(next_stream_ += 16); }  // but a name
  void synchronize(CUstream) override {}
  std::unique_ptr<Graph> capture(CUstream, const std::function<void()>& enqueue) override {
    return std::make_unique<HostGraph>(enqueue);
  }

 private:
  struct HostGraph final : Graph {
    explicit HostGraph(std::function<void()> enqueue) : enqueue(std::move(enqueue)) {}
    double replay_us() override {
      const auto begin = std::chrono::steady_clock::now();
      enqueue();
      return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    }
    std::function<void()> enqueue;
  };

  std::uintptr_t next_stream_ = 0x1000;
};

}  // namespace

std::unique_ptr<Device> Device::cuda() { return std::make_unique<CudaDevice>(); }
std::unique_ptr<Device> Device::host() { return std::make_unique<HostDevice>(); }

}  // namespace ab
