#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "fake_check.hpp"
#include "jitgemm/error.hpp"
#include "kernels/legality.hpp"

namespace jitgemm::test {

/// A device of virtual time on host memory. A launch computes D = A * B (f16 to f32, row-major) and takes as long as
/// the test says; the host takes a while for each launch, too. The checking kernel takes no time, and no count has it.
class FakeBackend : public Backend {
 public:
  struct Behaviour {
    /// Microseconds of a launch; `k` is the launch's.
    std::function<double(const KernelConfig&, int k)> time_us = [](const KernelConfig&, int) { return 50.0; };
    std::function<void(const KernelConfig&)> compile = [](const KernelConfig&) {};  ///< may throw
    std::function<void(const KernelConfig&)> launch = [](const KernelConfig&) {};   ///< may throw
    std::function<void()> compile_check = [] {};                                    ///< may throw
    std::function<void(device::CheckTask)> check = [](device::CheckTask) {};        ///< a launch of it; may throw
    std::function<void(const KernelConfig&, float* d, const device::Arguments&)> spoil = {};
    double host_us = 3;       ///< of a launch
    double neighbour_us = 1;  ///< of the kernel between
    int longest_k = 1 << 30;  ///< a launch with more computes nothing
    std::size_t memory_bytes = std::size_t{1} << 30;
    DeviceInfo device = small_device();
  };
  static DeviceInfo small_device() {
    DeviceInfo device = device_info_for("sm_80");
    device.l2_bytes = 64 * 1024;
    return device;
  }

  explicit FakeBackend(Behaviour behaviour) : behaviour_(std::move(behaviour)) {}
  ~FakeBackend() override {
    for (const auto& [memory, bytes] : memory_) std::free(memory);
  }

  int compiles() const { return compiles_; }
  int launches(const KernelConfig& config) const {
    const auto found = launches_.find(to_string(config));
    return found == launches_.end() ? 0 : found->second;
  }
  /// Distinct A of all launches.
  std::size_t inputs_seen() const { return inputs_seen_.size(); }
  int alive() const { return int(memory_.size()) + streams_ + events_; }

  const DeviceInfo& device() const override { return behaviour_.device; }
  std::string compiler_kind() const override { return "fake"; }
  std::string compiler_version() override { return "fake 1"; }
  KernelBinary compile(const KernelSource& source) override {
    const bool checks = source.config == "check";
    checks ? behaviour_.compile_check() : behaviour_.compile(parse_kernel_config(source.config));
    const std::lock_guard guard(mutex_);
    compiles_ += !checks;
    return {.code = source.config, .entry = source.entry, .architecture = source.architecture, .compiler = "fake 1"};
  }
  std::unique_ptr<LoadedKernel> load(const KernelBinary& binary, std::size_t) override {
    auto kernel = std::make_unique<FakeKernel>();
    kernel->checks = binary.code == "check";
    if (!kernel->checks) kernel->config = parse_kernel_config(binary.code);
    return kernel;
  }

  void launch(const LoadedKernel& kernel, const LaunchGrid& shape, ArgumentBytes bytes, Stream) override {
    if (static_cast<const FakeKernel&>(kernel).checks) return check(bytes, shape.grid);
    device::Arguments arguments;
    if (bytes.size() != sizeof arguments) throw std::logic_error("a fake device only multiplies");
    std::memcpy(&arguments, bytes.data(), sizeof arguments);
    // The source, and so the kernel, does not say how it is split. The launch does.
    KernelConfig config = static_cast<const FakeKernel&>(kernel).config;
    const device::Decomposition& d = arguments.decomposition;
    config.splits = config.schedule == Schedule::split_k ? d.splits : 1;
    config.grid = config.schedule == Schedule::split_k || config.schedule == Schedule::data_parallel ? 0 : shape.grid;
    behaviour_.launch(config);
    ++launches_[to_string(config)];
    inputs_seen_.insert(arguments.a);
    if (arguments.k <= behaviour_.longest_k) multiply(arguments);
    if (behaviour_.spoil) behaviour_.spoil(config, static_cast<float*>(arguments.d), arguments);
    host_us_ += behaviour_.host_us;
    device_us_ = std::max(device_us_, host_us_) + behaviour_.time_us(config, arguments.k);
  }
  bool can_be_resident(const LoadedKernel&, const LaunchGrid&, Stream) override { return true; }
  device::TensorMap encode_tensor_map(const TensorMapSpec&) override { return {}; }

  void* allocate(std::size_t bytes) override {
    const std::lock_guard guard(mutex_);
    std::size_t used = bytes;
    for (const auto& [memory, size] : memory_) used += size;
    if (used > behaviour_.memory_bytes) throw Error(ErrorCode::out_of_memory, "no memory; give more");
    void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    memory_[memory] = bytes;
    return memory;
  }
  void release(void* memory) noexcept override {
    const std::lock_guard guard(mutex_);
    memory_.erase(memory);
    std::free(memory);
  }
  void fill(void* memory, unsigned char byte, std::size_t bytes) override { std::memset(memory, byte, bytes); }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  /// -2, -1, 1 or 2 in f16.
  void copy_rows(void* to, std::size_t to_stride, const void* from, std::size_t from_stride, std::size_t row_bytes,
                 std::size_t rows, Stream) override {
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(static_cast<char*>(to) + row * to_stride, static_cast<const char*>(from) + row * from_stride,
                  row_bytes);
  }
  void fill_random(void* memory, std::int64_t elements, DataType, std::uint64_t seed) override {
    constexpr std::uint16_t values[] = {0xc000, 0xbc00, 0x3c00, 0x4000};
    auto* const out = static_cast<std::uint16_t*>(memory);
    std::uint64_t state = seed;
    for (std::int64_t i = 0; i < elements; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      out[i] = values[state >> 62];
    }
  }

  /// Replayed at once, whatever a launch takes the host.
  std::unique_ptr<Recording> record(std::function<void(Stream)> enqueue) override {
    struct Replayed final : Recording {
      Replayed(FakeBackend& its, std::function<void(Stream)> launches) : backend(its), enqueue(std::move(launches)) {}
      void replay(Stream stream) override {
        const double host_us = std::exchange(backend.behaviour_.host_us, 0);
        try {
          enqueue(stream);
        } catch (...) {
          backend.behaviour_.host_us = host_us;
          throw;
        }
        backend.behaviour_.host_us = host_us;
        backend.host_us_ += host_us;
      }
      FakeBackend& backend;
      std::function<void(Stream)> enqueue;
    };
    return std::make_unique<Replayed>(*this, std::move(enqueue));
  }
  void launch_neighbour(Stream) override {
    ++neighbours_;
    device_us_ = std::max(device_us_, host_us_) + behaviour_.neighbour_us;
  }
  int neighbours() const { return neighbours_; }

  std::uint64_t stream_id(Stream) override { return 1; }
  CaptureStatus capture_status(Stream) override { return CaptureStatus::none; }
  void synchronize(Stream) override { host_us_ = std::max(host_us_, device_us_); }
  bool is_idle(Stream) override { return true; }
  Stream create_stream() override { return ++streams_, reinterpret_cast<Stream>(this); }
  void destroy_stream(Stream) noexcept override { --streams_; }
  void* create_event() override { return ++events_, new double; }
  void record_event(void* event, Stream) override { *static_cast<double*>(event) = std::max(device_us_, host_us_); }
  double elapsed_us(void* begin, void* end) override {
    host_us_ = std::max(host_us_, *static_cast<double*>(end));
    return *static_cast<double*>(end) - *static_cast<double*>(begin);
  }
  bool has_passed(void* event) override { return *static_cast<double*>(event) <= host_us_; }
  void wait_event(void*, Stream) override {}
  void destroy_event(void* event) noexcept override { --events_, delete static_cast<double*>(event); }
  std::unique_ptr<RelaxedCapture> relax_capture() override { return std::make_unique<RelaxedCapture>(); }
  void check_pointer(const void*, const char*, Stream) override {}

 private:
  struct FakeKernel : LoadedKernel {
    KernelConfig config;
    bool checks = false;
  };

  void check(ArgumentBytes bytes, int blocks) const {
    device::CheckArguments arguments;
    if (bytes.size() != sizeof arguments) throw std::logic_error("the checking kernel takes CheckArguments");
    std::memcpy(&arguments, bytes.data(), sizeof arguments);
    behaviour_.check(arguments.task);
    FakeCheck(arguments, f32).run(blocks);
  }
  static float f32_of(std::uint16_t bits) {
    return (bits & 0x8000 ? -1.0f : 1.0f) * ((bits & 0x7fff) == 0x4000 ? 2.0f : 1.0f);
  }
  static void multiply(const device::Arguments& x) {
    const auto* const a = static_cast<const std::uint16_t*>(x.a);
    const auto* const b = static_cast<const std::uint16_t*>(x.b);
    const auto rows = static_cast<std::size_t>(x.k), columns = static_cast<std::size_t>(x.n);
    std::vector<float> b_values(rows * columns), row(columns);
    for (std::size_t l = 0; l < rows; ++l) {
      for (std::size_t j = 0; j < columns; ++j) b_values[l * columns + j] = f32_of(b[l * std::size_t(x.ldb) + j]);
    }
    for (int i = 0; i < x.m; ++i) {
      std::fill(row.begin(), row.end(), 0.0f);
      for (std::size_t l = 0; l < rows; ++l) {
        const float scale = f32_of(a[i * x.lda + std::int64_t(l)]);
        for (std::size_t j = 0; j < columns; ++j) row[j] += scale * b_values[l * columns + j];
      }
      std::copy(row.begin(), row.end(), static_cast<float*>(x.d) + i * x.ldd);
    }
  }

  Behaviour behaviour_;
  std::mutex mutex_;  // compile, load, allocate may come from several threads
  std::map<void*, std::size_t> memory_;
  std::map<std::string, int> launches_;
  std::set<const void*> inputs_seen_;
  int compiles_ = 0, neighbours_ = 0, streams_ = 0, events_ = 0;
  double host_us_ = 0, device_us_ = 0;
};

}  // namespace jitgemm::test
