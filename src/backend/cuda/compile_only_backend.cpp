#include "backend/backend.hpp"
#include "backend/cuda/nvrtc.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

/// NVRTC for a device that is not there.
class CompileOnlyBackend final : public Backend {
 public:
  CompileOnlyBackend(const std::string& architecture, bool dependent_launch) : device_(device_info_for(architecture)) {
    device_.dependent_launch = dependent_launch;
  }

  const DeviceInfo& device() const override { return device_; }
  std::string compiler_kind() const override { return cuda::nvrtc_kind(); }
  std::string compiler_version() override { return cuda::nvrtc().name; }
  KernelBinary compile(const KernelSource& source) override { return cuda::compile(cuda::nvrtc(), source); }

  std::unique_ptr<LoadedKernel> load(const KernelBinary&, std::size_t) override { no_device("load a kernel"); }
  void launch(const LoadedKernel&, const LaunchGrid&, ArgumentBytes, Stream) override { no_device("launch a kernel"); }
  bool can_be_resident(const LoadedKernel&, const LaunchGrid&, Stream) override { no_device("launch a kernel"); }
  device::TensorMap encode_tensor_map(const TensorMapSpec&) override { no_device("encode a tensor map"); }
  void* allocate(std::size_t) override { no_device("allocate memory"); }
  void release(void*) noexcept override {}
  void fill(void*, unsigned char, std::size_t) override { no_device("fill memory"); }
  void copy_to_device(void*, const void*, std::size_t) override { no_device("copy memory"); }
  void copy_to_host(void*, const void*, std::size_t) override { no_device("copy memory"); }
  void copy_rows(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, Stream) override {
    no_device("copy memory");
  }
  void fill_random(void*, std::int64_t, DataType, std::uint64_t) override { no_device("fill memory"); }
  std::uint64_t stream_id(Stream) override { no_device("use a stream"); }
  CaptureStatus capture_status(Stream) override { no_device("use a stream"); }
  void synchronize(Stream) override { no_device("use a stream"); }
  bool is_idle(Stream) override { no_device("use a stream"); }
  Stream create_stream() override { no_device("use a stream"); }
  void destroy_stream(Stream) noexcept override {}
  void* create_event() override { no_device("use an event"); }
  void record_event(void*, Stream) override { no_device("use an event"); }
  double elapsed_us(void*, void*) override { no_device("use an event"); }
  bool has_passed(void*) override { no_device("use an event"); }
  void wait_event(void*, Stream) override { no_device("use an event"); }
  void destroy_event(void*) noexcept override {}
  std::unique_ptr<RelaxedCapture> relax_capture() override { return std::make_unique<RelaxedCapture>(); }
  void check_pointer(const void*, const char*, Stream) override { no_device("use device memory"); }

 private:
  [[noreturn]] static void no_device(const char* what) {
    throw Error(ErrorCode::no_device, std::string("the device compile_only cannot ") + what +
                                          "; make the Context with the device cuda or emulator");
  }

  DeviceInfo device_;
};

}  // namespace

std::unique_ptr<Backend> make_compile_only_backend(const std::string& architecture, bool dependent_launch) {
  return std::make_unique<CompileOnlyBackend>(architecture, dependent_launch);
}

}  // namespace jitgemm
