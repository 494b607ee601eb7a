#include "backend/cuda/cuda_backend.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "backend/cuda/captured_start.hpp"
#include "backend/cuda/cluster_occupancy.hpp"
#include "backend/cuda/cuda_kernel.hpp"
#include "backend/cuda/device_context.hpp"
#include "backend/cuda/graph_capture.hpp"
#include "backend/cuda/graph_recording.hpp"
#include "backend/cuda/launch_config.hpp"
#include "backend/cuda/neighbour.hpp"
#include "backend/cuda/nvrtc.hpp"
#include "backend/cuda/peer_memory.hpp"
#include "backend/cuda/pointer_reach.hpp"
#include "backend/cuda/tensor_map.hpp"
#include "util/host_memory.hpp"

namespace jitgemm::cuda {
namespace {

constexpr int first_to_capture_dependents = 12030;  // CUDA 12.3: programmatic launches become edges of a graph
constexpr std::size_t pattern_elements = std::size_t(1) << 22;

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

/// Copies and zeroing run on a stream of the backend's own, so that they neither wait for other streams nor enter a
/// capture: callers synchronise a stream before they read what it wrote.
class CudaBackend final : public Backend {
 public:
  CudaBackend(const DriverApi& api, bool dependent_launch, int device)
      : api_(api), context_(api, device), device_(device_info(api, context_.device)) {
    if (device_.compute_capability < 80) {
      throw Error(ErrorCode::no_device,
                  device_.name + " is of compute capability " + std::to_string(device_.compute_capability / 10) + "." +
                      std::to_string(device_.compute_capability % 10) +
                      ", the kernels need 8.0; choose another in cuda_device or CUDA_VISIBLE_DEVICES");
    }
    int version = 0;
    check(api_.driver_get_version(&version), ErrorCode::no_device, "cuDriverGetVersion", "check nvidia-smi");
    device_.dependent_launch = dependent_launch;
    dependent_launch_ = device_.launches_dependents() && version >= first_to_capture_dependents;
    Scope scope(*this);
    if (device_.has_wgmma()) device_.clusters_at_once = cluster_counts(context_, device_);
    check(api_.stream_create(&own_stream_, CU_STREAM_NON_BLOCKING), ErrorCode::no_device, "cuStreamCreate",
          "check nvidia-smi");
  }
  ~CudaBackend() override {
    for (const auto& [type, pattern] : patterns_) release(pattern);
    destroy_stream(own_stream_);
  }

  const DeviceInfo& device() const override { return device_; }
  std::string compiler_kind() const override { return nvrtc_kind(); }
  std::string compiler_version() override { return nvrtc().name; }
  KernelBinary compile(const KernelSource& source) override { return cuda::compile(nvrtc(), source); }

  std::unique_ptr<LoadedKernel> load(const KernelBinary& binary, std::size_t smem_bytes) override {
    const Scope scope(*this);
    return load_kernel(context_, dependent_launch_ ? &triggers_ : nullptr, binary, smem_bytes);
  }
  void launch(const LoadedKernel& kernel, const LaunchGrid& grid, ArgumentBytes arguments, Stream stream) override;
  bool can_be_resident(const LoadedKernel& kernel, const LaunchGrid& grid, Stream stream) override;
  device::TensorMap encode_tensor_map(const TensorMapSpec& spec) override {
    const CurrentContext current(context_);
    return cuda::encode_tensor_map(api_, spec);
  }

  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;
  void fill(void* memory, unsigned char byte, std::size_t bytes) override;
  void copy_to_device(void* to, const void* from, std::size_t bytes) override;
  void copy_to_host(void* to, const void* from, std::size_t bytes) override;
  void copy_rows(void* to, std::size_t to_stride, const void* from, std::size_t from_stride, std::size_t row_bytes,
                 std::size_t rows, Stream stream) override;
  void fill_random(void* memory, std::int64_t elements, DataType type, std::uint64_t seed) override;

  PeerHandle handle_of(void* memory) override {
    const Scope scope(*this);
    return cuda::handle_of(context_, memory);
  }
  void* open_peer(const PeerHandle& handle) override {
    const Scope scope(*this);
    return cuda::open_peer(context_, handle);
  }
  void close_peer(void* memory) noexcept override { cuda::close_peer(context_, memory); }
  void* allocate_on_host(std::size_t bytes) override;
  void release_on_host(void* memory) noexcept override {
    if (memory) context_.attempt("cuMemFreeHost", [&] { return api_.mem_free_host(memory); });
  }

  std::uint64_t stream_id(Stream stream) override;
  CaptureStatus capture_status(Stream stream) override;
  CapturePoint capture_point(Stream stream) override {
    const CurrentContext current(context_);
    return cuda::capture_point(api_, stream);
  }
  bool comes_after(const CapturePoint& point, void* node) override {
    const CurrentContext current(context_);
    return cuda::comes_after(api_, point, node);
  }
  void hold_with_graph(const CapturePoint& point, std::shared_ptr<const void> held) override {
    const CurrentContext current(context_);
    cuda::hold_with_graph(api_, point, std::move(held));
  }
  std::unique_ptr<Recording> record(std::function<void(Stream)> enqueue) override {
    return std::make_unique<GraphRecording>(context_, enqueue);
  }
  void launch_neighbour(Stream stream) override {
    const CurrentContext current(context_);
    neighbour_.launch(device_.sm_count, stream);
  }
  void synchronize(Stream stream) override;
  bool is_idle(Stream stream) override;
  Stream create_stream() override;
  void destroy_stream(Stream stream) noexcept override;

  void* create_event() override;
  void record_event(void* event, Stream stream) override;
  double elapsed_us(void* begin, void* end) override;
  bool has_passed(void* event) override;
  void wait_event(void* event, Stream stream) override;
  void destroy_event(void* event) noexcept override;

  std::unique_ptr<RelaxedCapture> relax_capture() override { return std::make_unique<Relaxed>(context_); }
  int device_number() override { return number_of(context_); }
  void in_its_context(FunctionRef<void()> work) override {
    const CurrentContext current(context_);
    work();
  }
  void check_pointer(const void* pointer, const char* name, Stream stream) override;

 private:
  /// In our context, and free to do what a capture forbids.
  struct Scope {
    explicit Scope(const CudaBackend& backend) : current(backend.context_), relaxed(backend.context_) {}
    CurrentContext current;
    Relaxed relaxed;
  };

  void check(CUresult result, ErrorCode code, const char* call, const char* way_out) const {
    cuda::check(api_, result, code, call, way_out);
  }
  void wait_for_own_stream() {
    check(api_.stream_synchronize(own_stream_), ErrorCode::launch_failed, "cuStreamSynchronize", earlier_failure);
  }
  /// Of a query: false where it is not ready yet.
  bool is_ready(CUresult result, const char* call) const {
    if (result == CUDA_ERROR_NOT_READY) return false;
    check(result, ErrorCode::launch_failed, call, earlier_failure);
    return true;
  }
  bool is_capturing(Stream stream);  // in the current context
  CUdeviceptr pattern(DataType type);

  static constexpr const char* earlier_failure =
      "an earlier kernel or copy on this CUDA context may have failed: run under compute-sanitizer to find it";

  const DriverApi& api_;
  DeviceContext context_;
  DeviceInfo device_;
  bool dependent_launch_ = false;
  EarlyTriggers triggers_;
  Neighbour neighbour_{context_};
  CUstream own_stream_ = nullptr;
  std::mutex patterns_mutex_;
  std::map<DataType, void*> patterns_;  // N(0,1), on the device
};

bool CudaBackend::can_be_resident(const LoadedKernel& kernel, const LaunchGrid& shape, Stream stream) {
  const Scope scope(*this);
  const CUfunction function = static_cast<const CudaKernel&>(kernel).function;
  int count = 0;
  if (shape.cluster > 1) {
    // Of a stream's green context, the driver counts that context's SMs.
    const LaunchConfig config(shape, false, stream);
    const CUresult result = api_.occupancy_max_active_clusters(&count, function, &config);
    if (result == CUDA_ERROR_INVALID_CLUSTER_SIZE) return false;
    check(result, ErrorCode::launch_failed, "cuOccupancyMaxActiveClusters", earlier_failure);
  } else {
    check(api_.occupancy_max_active_blocks(&count, function, shape.threads, shape.smem_bytes), ErrorCode::launch_failed,
          "cuOccupancyMaxActiveBlocksPerMultiprocessor", earlier_failure);
  }
  return count > 0;
}

void CudaBackend::launch(const LoadedKernel& kernel, const LaunchGrid& grid, ArgumentBytes arguments, Stream stream) {
  CurrentContext current(context_);
  std::optional<CapturedStart> start;
  if (dependent_launch_ && is_capturing(stream)) start.emplace(api_, triggers_, device_.sm_count, grid, stream);
  LaunchConfig config(grid, start ? start->by_trigger() : dependent_launch_, stream);
  void* parameters[] = {const_cast<std::byte*>(arguments.data())};
  const CUresult result =
      api_.launch_kernel_ex(&config, static_cast<const CudaKernel&>(kernel).function, parameters, nullptr);
  check(result, ErrorCode::launch_failed, "cuLaunchKernelEx",
        result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES ? "give a candidate that needs less, and report it"
                                                     : earlier_failure);
  if (start) start->launched();
}

void* CudaBackend::allocate(std::size_t bytes) {
  Scope scope(*this);
  CUdeviceptr memory = 0;
  if (const CUresult result = api_.mem_alloc(&memory, bytes ? bytes : 1); result != CUDA_SUCCESS) {
    throw driver_error(api_, result, ErrorCode::launch_failed, "cuMemAlloc of " + std::to_string(bytes) + " bytes",
                       earlier_failure);
  }
  return reinterpret_cast<void*>(memory);
}

void CudaBackend::release(void* memory) noexcept {
  if (memory) context_.attempt("cuMemFree", [&] { return api_.mem_free(address(memory)); });
}

void CudaBackend::fill(void* memory, unsigned char byte, std::size_t bytes) {
  Scope scope(*this);
  check(api_.memset_d8_async(address(memory), byte, bytes, own_stream_), ErrorCode::launch_failed, "cuMemsetD8Async",
        earlier_failure);
  wait_for_own_stream();
}

void CudaBackend::copy_to_device(void* to, const void* from, std::size_t bytes) {
  Scope scope(*this);
  check(api_.memcpy_htod_async(address(to), from, bytes, own_stream_), ErrorCode::launch_failed, "cuMemcpyHtoDAsync",
        earlier_failure);
  wait_for_own_stream();
}

void CudaBackend::copy_to_host(void* to, const void* from, std::size_t bytes) {
  Scope scope(*this);
  check(api_.memcpy_dtoh_async(to, address(from), bytes, own_stream_), ErrorCode::launch_failed, "cuMemcpyDtoHAsync",
        earlier_failure);
  wait_for_own_stream();
}

void CudaBackend::copy_rows(void* to, std::size_t to_stride, const void* from, std::size_t from_stride,
                            std::size_t row_bytes, std::size_t rows, Stream stream) {
  if (row_bytes == 0 || rows == 0) return;
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = address(from);
  copy.srcPitch = from_stride;
  copy.dstDevice = address(to);
  copy.dstPitch = to_stride;
  copy.WidthInBytes = row_bytes;
  copy.Height = rows;
  const CurrentContext current(context_);
  check(api_.memcpy_2d_async(&copy, stream), ErrorCode::launch_failed, "cuMemcpy2DAsync", earlier_failure);
}

void* CudaBackend::allocate_on_host(std::size_t bytes) {
  Scope scope(*this);
  void* memory = nullptr;
  check(api_.mem_host_alloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        ErrorCode::launch_failed, "cuMemHostAlloc", earlier_failure);
  std::memset(memory, 0, bytes);
  return memory;
}

CUdeviceptr CudaBackend::pattern(DataType type) {
  const std::lock_guard lock(patterns_mutex_);
  void*& pattern = patterns_[type];
  if (!pattern) {
    const std::string host = random_pattern(type, pattern_elements);
    void* memory = allocate(host.size());
    try {
      copy_to_device(memory, host.data(), host.size());
    } catch (...) {
      release(memory);
      throw;
    }
    pattern = memory;
  }
  return address(pattern);
}

void CudaBackend::fill_random(void* memory, std::int64_t elements, DataType type, std::uint64_t seed) {
  const CUdeviceptr from = pattern(type);
  const std::size_t size = size_of(type);
  Scope scope(*this);
  // Pieces of the pattern, each from another place in its first half, at least half of it long.
  for (std::uint64_t piece = 0, done = 0; done < std::uint64_t(elements); ++piece) {
    const std::uint64_t begin = begin_of_piece(seed, piece) % (pattern_elements / 2);
    const std::uint64_t count = std::min(pattern_elements - begin, std::uint64_t(elements) - done);
    check(api_.memcpy_dtod_async(address(memory) + done * size, from + begin * size, count * size, own_stream_),
          ErrorCode::launch_failed, "cuMemcpyDtoDAsync", earlier_failure);
    done += count;
  }
  wait_for_own_stream();
}

std::uint64_t CudaBackend::stream_id(Stream stream) {
  CurrentContext current(context_);
  unsigned long long id = 0;
  check(api_.stream_get_id(stream, &id), ErrorCode::launch_failed, "cuStreamGetId",
        "pass a live stream of this context");
  return id;
}

CaptureStatus CudaBackend::capture_status(Stream stream) {
  CurrentContext current(context_);
  return is_capturing(stream) ? CaptureStatus::capturing : CaptureStatus::none;
}

bool CudaBackend::is_capturing(Stream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(api_.stream_is_capturing(stream, &status), ErrorCode::launch_failed, "cuStreamIsCapturing",
        "pass a live stream of this context, and not the default stream while another one is captured");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void CudaBackend::synchronize(Stream stream) {
  Scope scope(*this);
  check(api_.stream_synchronize(stream), ErrorCode::launch_failed, "cuStreamSynchronize", earlier_failure);
}

bool CudaBackend::is_idle(Stream stream) {
  const Scope scope(*this);
  return is_ready(api_.stream_query(stream), "cuStreamQuery");
}

Stream CudaBackend::create_stream() {
  Scope scope(*this);
  CUstream stream = nullptr;
  check(api_.stream_create(&stream, CU_STREAM_NON_BLOCKING), ErrorCode::launch_failed, "cuStreamCreate",
        earlier_failure);
  return stream;
}

void CudaBackend::destroy_stream(Stream stream) noexcept {
  if (stream) context_.attempt("cuStreamDestroy", [&] { return api_.stream_destroy(stream); });
}

void* CudaBackend::create_event() {
  Scope scope(*this);
  CUevent event = nullptr;
  check(api_.event_create(&event, CU_EVENT_DEFAULT), ErrorCode::launch_failed, "cuEventCreate", earlier_failure);
  return event;
}

void CudaBackend::record_event(void* event, Stream stream) {
  CurrentContext current(context_);
  check(api_.event_record(static_cast<CUevent>(event), stream), ErrorCode::launch_failed, "cuEventRecord",
        earlier_failure);
}

double CudaBackend::elapsed_us(void* begin, void* end) {
  Scope scope(*this);
  check(api_.event_synchronize(static_cast<CUevent>(end)), ErrorCode::launch_failed, "cuEventSynchronize",
        earlier_failure);
  float milliseconds = 0;
  check(api_.event_elapsed_time(&milliseconds, static_cast<CUevent>(begin), static_cast<CUevent>(end)),
        ErrorCode::launch_failed, "cuEventElapsedTime", earlier_failure);
  return milliseconds * 1e3;
}

bool CudaBackend::has_passed(void* event) {
  const Scope scope(*this);
  return is_ready(api_.event_query(static_cast<CUevent>(event)), "cuEventQuery");
}

void CudaBackend::wait_event(void* event, Stream stream) {
  const CurrentContext current(context_);
  check(api_.stream_wait_event(stream, static_cast<CUevent>(event), 0), ErrorCode::launch_failed, "cuStreamWaitEvent",
        earlier_failure);
}

void CudaBackend::destroy_event(void* event) noexcept {
  if (event) context_.attempt("cuEventDestroy", [&] { return api_.event_destroy(static_cast<CUevent>(event)); });
}

void CudaBackend::check_pointer(const void* pointer, const char* name, Stream stream) {
  Scope scope(*this);
  const Reach reach = reach_of(context_, pointer);
  if (reach == Reach::ours) return;
  // What a graph allocates has an address before it has memory, and the driver does not say whose. The host cannot read
  // it.
  if (reach == Reach::unknown && capture_status(stream) == CaptureStatus::capturing && !host_can_read(pointer)) return;
  throw Error(ErrorCode::invalid_operand, "operand " + std::string(name) + text_of(reach));
}

}  // namespace

std::unique_ptr<Backend> make_backend(const DriverApi& api, bool dependent_launch, int device) {
  return std::make_unique<CudaBackend>(api, dependent_launch, device);
}

}  // namespace jitgemm::cuda

namespace jitgemm {

std::unique_ptr<Backend> make_cuda_backend(bool dependent_launch, int device) {
  return cuda::make_backend(cuda::driver(), dependent_launch, device);
}

}  // namespace jitgemm
