#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cfenv>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <thread>

#include "backend/backend.hpp"
#include "backend/emulator/compiler.hpp"
#include "backend/emulator/copies.hpp"
#include "backend/emulator/copy_engine.hpp"
#include "backend/emulator/interface.hpp"
#include "backend/emulator/launch.hpp"
#include "backend/emulator/stream_order.hpp"
#include "backend/emulator/system_scope.hpp"
#include "backend/emulator/temporary_directory.hpp"
#include "core/element.hpp"
#include "core/out_of_memory.hpp"
#include "jitgemm/error.hpp"
#include "util/environment.hpp"
#include "util/errno_text.hpp"

namespace jitgemm {

namespace {

using emulator::Launch;

class EmulatedKernel final : public LoadedKernel {
 public:
  EmulatedKernel(const KernelBinary& binary, std::size_t smem) : smem_bytes(smem) {
    const emulator::TemporaryDirectory directory;
    const std::string path = directory.file("kernel.so");
    emulator::write_file(path, binary.code);
    errno = 0;
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_) {
      // Neither says anything about the kernel, which its cache would drop otherwise.
      const int error = errno;
      if (error == ENOMEM) throw_out_of_memory();
      if (is_out_of_descriptors(error)) {
        throw Error(ErrorCode::io, "the emulator cannot load a kernel: " + errno_text(error) + "; " + more_descriptors)
            .with_call("dlopen");
      }
      refuse(dlerror());
    }
    const auto bind =
        reinterpret_cast<bool (*)(const device::emulator::Interface*)>(dlsym(library_, "jitgemm_emulator_bind"));
    const auto* const bytes = static_cast<const unsigned*>(dlsym(library_, "jitgemm_emulator_argument_bytes"));
    run = reinterpret_cast<void (*)(const void*)>(dlsym(library_, "jitgemm_emulator_run"));
    if (!bind || !bytes || !run) {
      dlclose(library_);
      refuse("it has no kernel " + binary.entry);
    }
    argument_bytes = *bytes;
    dependent = bind(&emulator::interface());
  }
  ~EmulatedKernel() override { dlclose(library_); }

  void (*run)(const void* arguments);  // by one thread
  std::size_t argument_bytes, smem_bytes;
  bool dependent;  // waits for the launches before

 private:
  [[noreturn]] static void refuse(const std::string& why) {
    throw Error(ErrorCode::load_failed, "the emulator cannot load a kernel: " + why + "; compile it again")
        .with_call("dlopen");
  }
  void* library_;
};

/// Rounding to nearest even and subnormal numbers, whatever the calling thread has set for its own arithmetic.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&before_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

/// The number that an environment variable holds, if it is set.
std::optional<std::uint64_t> number_from_environment(const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  const char* end = text->data() + text->size();
  if (const auto [stop, failed] = std::from_chars(text->data(), end, value); failed != std::errc() || stop != end)
    throw Error(ErrorCode::invalid_option,
                std::string(name) + "=" + *text + " is not a number; unset it or set it to one");
  return value;
}

EmulatorOptions with_environment(EmulatorOptions options) {
  if (const auto seed = number_from_environment("JITGEMM_EMULATOR_SEED")) options.seed = *seed;
  if (const auto resident = number_from_environment("JITGEMM_EMULATOR_RESIDENT")) {
    if (*resident < 1 || *resident > 1024)
      throw Error(ErrorCode::invalid_option,
                  "JITGEMM_EMULATOR_RESIDENT=" + std::to_string(*resident) + " is not in 1..1024; unset it");
    options.resident_blocks = int(*resident);
  }
  if (const auto set = environment("JITGEMM_EMULATOR_ASYNC")) {
    const std::string& mode = *set;
    if (mode == "issue")
      options.asynchrony = EmulatorAsynchrony::at_issue;
    else if (mode == "wait")
      options.asynchrony = EmulatorAsynchrony::at_wait;
    else if (mode == "random")
      options.asynchrony = EmulatorAsynchrony::random;
    else
      throw Error(ErrorCode::invalid_option,
                  "JITGEMM_EMULATOR_ASYNC=" + mode + " is not a mode; use issue, wait or random");
  }
  return options;
}

std::uint64_t mixed(std::uint64_t z) {  // splitmix64
  z += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

class EmulatorBackend final : public Backend {
 public:
  explicit EmulatorBackend(const EmulatorOptions& options) : options_(options) {
    const std::string architecture = options.architecture.empty() ? "sm_90a" : options.architecture;
    device_ = device_info_for(architecture);
    if (options.sm_count < 1 || options.sm_count > 1024)
      throw Error(ErrorCode::invalid_option,
                  "emulator_sm_count=" + std::to_string(options.sm_count) + " is not in 1..1024; use 4");
    if (options.resident_blocks < 0 || options.resident_blocks > 1024)
      throw Error(ErrorCode::invalid_option,
                  "resident_blocks=" + std::to_string(options.resident_blocks) + " is not in 0..1024; use 0");
    device_.name = "emulator";
    device_.sm_count = options.sm_count;
    device_.emulated = true;
    device_.dependent_launch = options.dependent_launch;
  }

  const DeviceInfo& device() const override { return device_; }
  std::string compiler_kind() const override { return emulator::HostCompiler::kind(); }
  std::string compiler_version() override { return compiler_.version(); }
  KernelBinary compile(const KernelSource& source) override { return compiler_.compile(source); }
  std::unique_ptr<LoadedKernel> load(const KernelBinary& binary, std::size_t smem_bytes) override {
    return std::make_unique<EmulatedKernel>(binary, smem_bytes);
  }

  void launch(const LoadedKernel& kernel, const LaunchGrid& grid, ArgumentBytes arguments, Stream stream) override {
    const auto& emulated = dynamic_cast<const EmulatedKernel&>(kernel);
    if (const std::string why = why_impossible(emulated, grid, arguments); !why.empty())
      throw Error(ErrorCode::launch_failed, "the launch is refused: " + why + "; choose another configuration");
    // A copy of its own, as aligned as any kernel's struct.
    std::vector<device::TensorMap> parameter((arguments.size() + sizeof(device::TensorMap) - 1) /
                                             sizeof(device::TensorMap));
    std::memcpy(parameter.data(), arguments.data(), arguments.size());
    const emulator::StreamTurn turn(stream);
    const DefaultArithmetic rounds_as_a_gpu;
    Launch(launch_options(emulated, grid), [&] { emulated.run(parameter.data()); }).run();
  }

  bool can_be_resident(const LoadedKernel&, const LaunchGrid&, Stream) override { return true; }
  device::TensorMap encode_tensor_map(const TensorMapSpec& spec) override { return emulator::encode_tensor_map(spec); }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    // Not rounded up, so that AddressSanitizer sees the end.
    if (posix_memalign(&memory, 256, bytes ? bytes : 1) != 0)
      throw Error(ErrorCode::out_of_memory, "no host memory for " + std::to_string(bytes) + " bytes; free some");
    return memory;
  }
  void release(void* memory) noexcept override {
    emulator::forget_flags(memory);
    std::free(memory);
  }
  void fill(void* memory, unsigned char byte, std::size_t bytes) override { std::memset(memory, byte, bytes); }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }

  void copy_rows(void* to, std::size_t to_stride, const void* from, std::size_t from_stride, std::size_t row_bytes,
                 std::size_t rows, Stream stream) override {
    on(stream, [=, this] {
      delay();
      if (rows == 1 && row_bytes == sizeof(unsigned)) {  // a flag, which another device's kernel may be waiting for
        emulator::release_flag(static_cast<unsigned*>(to), *static_cast<const unsigned*>(from));
        return;
      }
      for (std::size_t row = 0; row_bytes > 0 && row < rows; ++row)
        std::memcpy(static_cast<char*>(to) + row * to_stride, static_cast<const char*>(from) + row * from_stride,
                    row_bytes);
    });
  }
  Stream create_copy_stream() override {
    const Stream stream = create_stream();
    const std::lock_guard lock(engines_mutex_);
    engines_[stream] = std::make_unique<emulator::CopyEngine>();
    return stream;
  }
  PeerHandle handle_of(void* memory) override {
    PeerHandle handle;
    const PeerAddress address{getpid(), memory};
    std::memcpy(handle.bytes.data(), &address, sizeof address);
    return handle;
  }
  void* open_peer(const PeerHandle& handle) override {
    PeerAddress address;
    std::memcpy(&address, handle.bytes.data(), sizeof address);
    if (address.process != getpid())
      throw Error(ErrorCode::no_device, "emulated devices reach each other in one process alone; use threads");
    return address.memory;
  }
  void* allocate_on_host(std::size_t bytes) override {
    void* const memory = allocate(bytes);
    std::memset(memory, 0, bytes);
    emulator::add_host_memory(memory, bytes);
    return memory;
  }
  void release_on_host(void* memory) noexcept override { release(memory); }

  void fill_random(void* memory, std::int64_t elements, DataType type, std::uint64_t seed) override {
    const double deviation = random_deviation(type);
    for (std::int64_t i = 0; i < elements; ++i) {
      // The sum of four uniform numbers is bell-shaped; scaled from variance 1/3.
      const std::uint64_t bits = mixed(mixed(seed) + std::uint64_t(i));
      double sum = -2;
      for (int part = 0; part < 4; ++part) sum += (double(bits >> 16 * part & 0xffff) + 0.5) * 0x1p-16;
      store_element(sum * std::numbers::sqrt3 * deviation, memory, i, type);
    }
  }

  // Launches are complete on return, so a thread's own are in order; a stream orders those of different threads.
  std::uint64_t stream_id(Stream stream) override { return reinterpret_cast<std::uintptr_t>(stream); }
  CaptureStatus capture_status(Stream) override { return CaptureStatus::none; }
  void synchronize(Stream stream) override { const emulator::StreamTurn after_all(stream); }
  bool is_idle(Stream stream) override { return emulator::is_idle(stream); }
  Stream create_stream() override {
    static std::atomic<std::uintptr_t> next{0x1000};
    return reinterpret_cast<Stream>(next += 16);
  }
  void destroy_stream(Stream stream) noexcept override {
    std::unique_ptr<emulator::CopyEngine> engine;
    const std::lock_guard lock(engines_mutex_);
    if (const auto found = engines_.find(stream); found != engines_.end()) {
      engine = std::move(found->second);
      engines_.erase(found);
    }
  }

  void* create_event() override { return new Event{Clock::now(), {}}; }
  void record_event(void* event, Stream stream) override {
    Event& its = *static_cast<Event*>(event);
    if (emulator::CopyEngine* const engine = engine_of(stream)) {
      its.passed = engine->put([] {});
      return;
    }
    const emulator::StreamTurn after_all(stream);
    its = {Clock::now(), {}};
  }
  void wait_event(void* event, Stream stream) override {
    const std::shared_future<void> passed = static_cast<Event*>(event)->passed;
    if (passed.valid()) on(stream, [passed] { passed.wait(); });
  }
  bool has_passed(void* event) override {
    const std::shared_future<void>& passed = static_cast<Event*>(event)->passed;
    return !passed.valid() || passed.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  double elapsed_us(void* begin, void* end) override {
    return std::chrono::duration<double, std::micro>(static_cast<Event*>(end)->time - static_cast<Event*>(begin)->time)
        .count();
  }
  void destroy_event(void* event) noexcept override { delete static_cast<Event*>(event); }

  std::unique_ptr<RelaxedCapture> relax_capture() override { return std::make_unique<RelaxedCapture>(); }

  void check_pointer(const void* pointer, const char* name, Stream) override {
    if (!pointer)
      throw Error(ErrorCode::invalid_operand, std::string(name) + " is null; pass host memory to the emulator");
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// What a PeerHandle's bytes are.
  struct PeerAddress {
    pid_t process = 0;
    void* memory = nullptr;
  };

  struct Event {
    Clock::time_point time;
    std::shared_future<void> passed;  // of a copy engine's stream
  };

  emulator::CopyEngine* engine_of(Stream stream) {
    const std::lock_guard lock(engines_mutex_);
    const auto found = engines_.find(stream);
    return found == engines_.end() ? nullptr : found->second.get();
  }
  /// Has a copy engine do the work, or does it in the stream's turn.
  template <typename Work>
  void on(Stream stream, const Work& work) {
    if (emulator::CopyEngine* const engine = engine_of(stream)) {
      engine->put(work);
      return;
    }
    const emulator::StreamTurn turn(stream);
    work();
  }

  /// With a seed, a copy engine takes its time: up to a millisecond.
  void delay() {
    if (options_.seed == 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(mixed(options_.seed + copies_++) % 1000));
  }

  /// What a driver would refuse; empty if nothing.
  std::string why_impossible(const EmulatedKernel& kernel, const LaunchGrid& shape, ArgumentBytes arguments) const {
    const auto text = [](auto number) { return std::to_string(number); };
    const int grid = shape.grid, threads = shape.threads, cluster = shape.cluster;
    if (grid < 1) return "a grid of " + text(grid);
    if (cluster != 1 && cluster != 2 && cluster != 4 && cluster != 8)
      return "clusters of " + text(cluster) + " blocks, not 1, 2, 4 or 8";
    if (cluster > 1 && device_.compute_capability < 90)
      return "clusters of " + text(cluster) + " blocks, which " + device_.architecture() + " does not have";
    if (grid % cluster != 0) return "a grid of " + text(grid) + " blocks in clusters of " + text(cluster);
    if ((shape.cooperative || shape.resident) && grid > 2 * device_.sm_count)
      return text(grid) + " blocks that are to be resident together on " + text(device_.sm_count) + " SMs";
    if (threads < 32 || threads > 1024 || threads % 32 != 0)
      return text(threads) + " threads are not a multiple of 32 in 32..1024";
    if (shape.smem_bytes > device_.smem_per_block)
      return text(shape.smem_bytes) + " bytes of shared memory, of " + text(device_.smem_per_block);
    if (shape.smem_bytes > kernel.smem_bytes)
      return text(shape.smem_bytes) + " bytes of shared memory, loaded for " + text(kernel.smem_bytes);
    if (arguments.size() != kernel.argument_bytes)
      return text(arguments.size()) + " bytes of arguments for a kernel that takes " + text(kernel.argument_bytes);
    return "";
  }

  Launch::Options launch_options(const EmulatedKernel& kernel, const LaunchGrid& shape) const {
    Launch::Options options;
    options.grid = shape.grid;
    options.threads = shape.threads;
    options.cluster = shape.cluster;
    options.dependent = kernel.dependent;
    options.holds_next_back = shape.holds_next_back;
    options.smem_bytes = shape.smem_bytes;
    options.ctas = options_.ctas;
    options.seed = options_.seed;
    options.resident = options_.resident_blocks;
    if (options.resident == 0)
      options.resident = options.seed == 0 ? 1 : 1 + int(mixed(options.seed) % std::min(2 * device_.sm_count, 16));
    options.all_resident = shape.cooperative || shape.resident;
    options.asynchrony = options_.asynchrony;
    if (options.asynchrony == EmulatorAsynchrony::automatic) {
      // The lowest bit chooses the order of warps.
      constexpr EmulatorAsynchrony modes[] = {EmulatorAsynchrony::random, EmulatorAsynchrony::at_wait,
                                              EmulatorAsynchrony::at_issue};
      options.asynchrony = options.seed == 0 ? EmulatorAsynchrony::at_issue : modes[options.seed / 2 % 3];
    }
    options.step_cap = options_.step_cap ? options_.step_cap : std::uint64_t(1) << 36;
    return options;
  }

  EmulatorOptions options_;
  DeviceInfo device_;
  emulator::HostCompiler compiler_;
  std::atomic<std::uint64_t> copies_ = 0;
  std::mutex engines_mutex_;
  std::unordered_map<Stream, std::unique_ptr<emulator::CopyEngine>> engines_;
};

}  // namespace

std::unique_ptr<Backend> make_emulator_backend(const EmulatorOptions& options) {
  return std::make_unique<EmulatorBackend>(with_environment(options));
}

}  // namespace jitgemm
