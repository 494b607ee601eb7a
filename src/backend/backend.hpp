#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device_info.hpp"
#include "core/kernel.hpp"
#include "core/kernel_interface.hpp"
#include "core/launch_grid.hpp"
#include "core/tensor_map_spec.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/types.hpp"
#include "util/function_ref.hpp"

namespace jitgemm {

/// A loaded, launchable kernel. Destroyed before its Backend; unloading is safe after the driver has shut down.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
};

/// Launches that are put on a stream again and again, without the host's delays between them: on CUDA a graph.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay(Stream stream) = 0;
};

enum class CaptureStatus : std::uint8_t { none, capturing };

/// How far a capture has come on a stream.
struct CapturePoint {
  std::uint64_t capture = 0;  ///< unique in the process's life
  void* graph = nullptr;      ///< that is captured into
  std::vector<void*> nodes;   ///< of it, that whatever is captured next on the stream depends on
};

/// Memory of a device, for other ranks of the node.
struct PeerHandle {
  std::array<std::byte, 112> bytes = {};
};

/// What compiles, loads and launches kernels and owns memory: the CUDA driver with NVRTC, or the emulator.
/// Thread-safe. Every function throws Error; none leaves the calling thread's current CUDA context changed.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const DeviceInfo& device() const = 0;

  /// Names the compiler without loading it if it can: what the cache records, e.g. "nvrtc" or "g++".
  virtual std::string compiler_kind() const = 0;
  /// The loaded compiler's exact version; loads it.
  virtual std::string compiler_version() = 0;
  virtual KernelBinary compile(const KernelSource& source) = 0;
  virtual std::unique_ptr<LoadedKernel> load(const KernelBinary& binary, std::size_t smem_bytes) = 0;

  /// Asynchronous on the stream. The bytes are those of the struct that this kernel takes, and are read before it
  /// returns.
  virtual void launch(const LoadedKernel& kernel, const LaunchGrid& grid, ArgumentBytes arguments, Stream stream) = 0;
  /// Whether the part of the device that the stream has (all of it, but for green contexts, MIG and MPS) can hold such
  /// a block, or a whole cluster of them, at once. Else a launch fails, on any day.
  virtual bool can_be_resident(const LoadedKernel& kernel, const LaunchGrid& grid, Stream stream) = 0;
  virtual device::TensorMap encode_tensor_map(const TensorMapSpec& spec) = 0;

  // Device memory. allocate() and filling work while any stream is capturing, and are not captured.
  virtual void* allocate(std::size_t bytes) = 0;  ///< 256-byte aligned; Error{out_of_memory}
  virtual void release(void* memory) noexcept = 0;
  virtual void fill(void* memory, unsigned char byte, std::size_t bytes) = 0;  ///< complete on return
  void zero(void* memory, std::size_t bytes) { fill(memory, 0, bytes); }
  virtual void copy_to_device(void* to, const void* from, std::size_t bytes) = 0;  ///< complete on return
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;    ///< complete on return
  /// Device to device, `rows` times `row_bytes`, each side's rows its stride apart. Asynchronous on the stream, and
  /// captured with it.
  virtual void copy_rows(void* to, std::size_t to_stride, const void* from, std::size_t from_stride,
                         std::size_t row_bytes, std::size_t rows, Stream stream) = 0;
  virtual void fill_random(void* memory, std::int64_t elements, DataType type,
                           std::uint64_t seed) = 0;  ///< about N(0,1)

  // Memory that the node's other devices reach. As they stand here, for a backend without: Error{no_device}.
  virtual PeerHandle handle_of(void*) { has_no_peers(); }         ///< of what allocate() gave, for other processes, too
  virtual void* open_peer(const PeerHandle&) { has_no_peers(); }  ///< where this device has it
  virtual void close_peer(void*) noexcept {}                      ///< what open_peer() gave
  /// A stream for copies alone, which run beside whatever other streams do.
  virtual Stream create_copy_stream() { return create_stream(); }
  virtual void* allocate_on_host(std::size_t) { has_no_peers(); }  ///< zeros, which the device reads and writes, too
  virtual void release_on_host(void*) noexcept {}

  // Streams.
  virtual std::uint64_t stream_id(Stream stream) = 0;  ///< never reused, unlike the handle
  virtual CaptureStatus capture_status(Stream stream) = 0;
  virtual void synchronize(Stream stream) = 0;
  /// Whether all that was enqueued has ended. Waits for nothing.
  virtual bool is_idle(Stream stream) = 0;
  // Of a stream that is being captured; as graphs are not thread-safe, by one thread at a time. As they stand here, for
  // what captures nothing.
  virtual CapturePoint capture_point(Stream) { return {}; }
  /// Whether `node` is one of the point's nodes or before them; false, too, where finding out would take too long.
  virtual bool comes_after(const CapturePoint&, void* /*node*/) { return false; }
  /// Keeps `held` until the graph, its clones and its instances are gone. It then ends on any thread and may not call
  /// CUDA.
  virtual void hold_with_graph(const CapturePoint&, std::shared_ptr<const void> /*held*/) {}

  /// Of what `enqueue` puts on the stream that it is given. What the launches use outlives it. Here `enqueue` itself,
  /// called again with each replay.
  virtual std::unique_ptr<Recording> record(std::function<void(Stream)> enqueue) {
    struct Again final : Recording {
      explicit Again(std::function<void(Stream)> its) : enqueue(std::move(its)) {}
      void replay(Stream stream) override { enqueue(stream); }
      std::function<void(Stream)> enqueue;
    };
    return std::make_unique<Again>(std::move(enqueue));
  }
  /// A small kernel such as others launch between two calls: a block an SM, nothing started early. None on the
  /// emulator.
  virtual void launch_neighbour(Stream) {}

  virtual Stream create_stream() = 0;  ///< non-blocking
  virtual void destroy_stream(Stream stream) noexcept = 0;

  /// Marks on a stream; elapsed_us() waits for the second.
  virtual void* create_event() = 0;
  virtual void record_event(void* event, Stream stream) = 0;
  virtual double elapsed_us(void* begin, void* end) = 0;
  virtual bool has_passed(void* event) = 0;  ///< what was recorded last; waits for nothing
  /// What is enqueued on the stream from here on waits for what was recorded last.
  virtual void wait_event(void* event, Stream stream) = 0;
  virtual void destroy_event(void* event) noexcept = 0;

  /// While it lives, allocations and module loads by this thread are legal although another thread captures.
  class RelaxedCapture {
   public:
    virtual ~RelaxedCapture() = default;
  };
  virtual std::unique_ptr<RelaxedCapture> relax_capture() = 0;

  /// The device's number as cuda_devices() lists them, which is the CUDA runtime's; 0 of what is no CUDA device.
  virtual int device_number() { return 0; }
  /// Calls `work` while the device's CUDA context is the thread's current one: for what is no call of a Backend.
  virtual void in_its_context(FunctionRef<void()> work) { work(); }

  /// Throws Error{invalid_operand} unless the pointer is memory that this device can access. In a capture it may be
  /// memory that the graph will have allocated by then, of which the driver knows nothing yet.
  virtual void check_pointer(const void* pointer, const char* name, Stream stream) = 0;

 private:
  [[noreturn]] static void has_no_peers() {
    throw Error(ErrorCode::no_device, "this device is of no node; make the Context with the device cuda or emulator");
  }
};

/// Throws Error{no_device} without a driver or device. `device`: as ContextOptions::cuda_device; Error{invalid_option}
/// if there is none of this number. `dependent_launch`: a kernel may start before the one that it follows on its stream
/// has ended, and waits for it before it touches memory (programmatic dependent launch; sm_90 and newer).
std::unique_ptr<Backend> make_cuda_backend(bool dependent_launch = true, int device = -1);
/// Compiles for an architecture with NVRTC; everything that needs a device throws Error{no_device}.
std::unique_ptr<Backend> make_compile_only_backend(const std::string& architecture, bool dependent_launch = true);

/// When the emulator lets asynchronous copies and wgmma take effect.
enum class EmulatorAsynchrony : std::uint8_t { automatic, at_issue, at_wait, random };

/// 0 or automatic: chosen by the seed. JITGEMM_EMULATOR_SEED, _ASYNC (issue, wait, random) and _RESIDENT go before
/// these.
struct EmulatorOptions {
  std::string architecture;  ///< empty: "sm_90a"
  int sm_count = 4;
  std::uint64_t seed = 0;  ///< of adversarial orders; 0: in order and fast
  EmulatorAsynchrony asynchrony = EmulatorAsynchrony::automatic;
  int resident_blocks = 0;     ///< blocks that run at once
  std::uint64_t step_cap = 0;  ///< operations of all threads before a launch counts as endless
  bool dependent_launch = true;
  std::vector<std::uint32_t> ctas = {};  ///< for tests: those of each launch that run; empty: all
};
std::unique_ptr<Backend> make_emulator_backend(const EmulatorOptions& options);

}  // namespace jitgemm
