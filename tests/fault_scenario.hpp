#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "c_context.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "fault_injection.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sample_configs.hpp"
#include "sandbox.hpp"

namespace jitgemm::test {

/// How much is alive.
struct Books {
  std::size_t objects = FakeGpu::alive.size() + FakeGraphs::handles.size(), programs = FakeNvrtc::alive.size();
  int retained = FakeGpu::retained;
  bool operator==(const Books&) const = default;
  std::size_t count() const { return objects + programs + std::size_t(retained); }
};

/// A process that uses the library, from loading the driver to the end of the Context, step by step: Context itself, or
/// what has its face.
template <typename AnyContext>
class Scenario {
 public:
  Scenario() {
    FakeGpu::reset();
    FakeNvrtc::reset();
    Faults::reset();
    unwrapped<cuda::DriverApi> = FakeGpu::api();
    unwrapped<cuda::NvrtcApi> = FakeNvrtc::api();
    logger().set_level(spdlog::level::info);
    FakeGpu::current = own_context();
    for (void*& operand : memory_) operand = FakeGpu::allocate_at_fixed_place(operand_bytes);
    for (void*& operand : peer_memory_) operand = FakeGpu::allocate_at_fixed_place(operand_bytes);
    for (int i = 0; i < largest * largest; ++i) {
      store(i % 5 - 2, memory_[0], i, f16);
      store(i % 7 - 3, memory_[1], i, f16);
    }
  }
  ~Scenario() {
    Faults::fault.reset();
    context_.reset();
    cuda::driver_for_tests = nullptr;
    cuda::nvrtc_for_tests = nullptr;
    logger().set_level(spdlog::level::warn);
    FakeGpu::reset();
  }
  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;

  /// The one that is current on the test's thread, and is nothing to the library.
  static CUcontext own_context() { return FakeGpu::context(9); }

  void load_driver() {
    driver_ = cuda::bind_driver(symbols<DriverFunctions>());
    cuda::driver_for_tests = &driver_;
  }
  void load_nvrtc() {
    nvrtc_ = cuda::bind_nvrtc(symbols<NvrtcFunctions>(), "libnvrtc.so");
    nvrtc_.name = cuda::exact_name(nvrtc_);
    cuda::nvrtc_for_tests = &nvrtc_;
  }
  void list_devices() { require(count_devices<AnyContext>() == 1, "the device is listed"); }
  void make_context() {
    const WithCurrent none(nullptr);
    context_.emplace(options());
  }
  void make_context_in_own() {
    const WithCurrent own(FakeGpu::context(1));
    AnyContext(options()).device();
  }
  void compile() { require(context_->compile(problem, split).registers == 96, "registers are read"); }
  void gemm_split() { run(problem, &split); }
  void gemm_tma() { run(problem, &tma); }
  /// D is another device's.
  void gemm_to_peer() {
    for (const FakeGpu::Made made : {FakeGpu::Made::from_pool, FakeGpu::Made::by_mapping}) {
      const OnPeer on_peer(made, memory_[2], peer_memory_[made == FakeGpu::Made::by_mapping]);
      run(problem, &split);
    }
  }
  void gemm_captured() {
    {
      const Capture capture;
      enqueue(problem, &stream_k);
      FakeGraphs::take(stream(), [] { return CUDA_SUCCESS; });
      enqueue(problem, &stream_k);
      capture_foreign_kernel();
      enqueue(problem, &stream_k);
      require(FakeGraphs::launch(capture.end()) == CUDA_SUCCESS, "the graph is launched");
      check(problem);
    }
    context_->trim();
  }
  /// One that runs for a while.
  static void capture_foreign_kernel() {
    CUlaunchConfig config{};
    config.gridDimX = 1000;
    config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    FakeGraphs::take(
        stream(), [] { return CUDA_SUCCESS; }, &config, reinterpret_cast<CUfunction>(std::uintptr_t(0x55)));
  }
  void gemm_captured_by_older_driver() {
    const cuda::DriverApi newer = driver_;
    driver_.stream_get_capture_info_v3 = nullptr;
    driver_.graph_node_get_dependencies_v2 = nullptr;
    driver_.stream_update_capture_dependencies_v2 = nullptr;
    const auto restore = std::unique_ptr<cuda::DriverApi, std::function<void(cuda::DriverApi*)>>(
        &driver_, [&](cuda::DriverApi* api) { *api = newer; });
    gemm_captured();
  }
  void gemm_captured_in_vain() {
    Faults::always["cuGraphRetainUserObject"] = CUDA_ERROR_NOT_SUPPORTED;
    const auto end = finally();
    gemm_captured();
  }
  void gemm_refused() {
    Faults::always["cuModuleLoadData"] = CUDA_ERROR_NO_BINARY_FOR_GPU;
    const auto end = finally();
    run(problem, &other);
  }
  void compile_refused() {
    Faults::always["nvrtcCompileProgram"] = NVRTC_ERROR_COMPILATION;
    const auto end = finally();
    context_->compile(problem, another);
  }
  void gemm_tuned() { run({.m = 16, .n = 16, .k = 64}, nullptr); }
  void tune() { require(context_->tune({.m = 8, .n = 16, .k = 64}).plan.measured_us > 0, "something is measured"); }
  void end() { context_.reset(); }

  /// What the log says, by line, and forgets it.
  std::vector<std::string> said() {
    std::vector<std::string> lines;
    std::istringstream text(log_->text());
    for (std::string line; std::getline(text, line);) {
      if (!line.starts_with("info: tuned ")) lines.push_back(without_names(line));
    }
    log_.emplace();
    return lines;
  }
  /// The text without what differs from one machine or version to the next.
  std::string without_names(std::string text) const {
    const std::string cache = cache_.path().string();
    for (std::size_t at; (at = text.find(cache)) != std::string::npos;) text.replace(at, cache.size(), "CACHE");
    text = std::regex_replace(text, std::regex("CACHE/\\S+"), "(file)");
    text = std::regex_replace(text, std::regex("of [0-9]+ bytes"), "of (n) bytes");
    text = std::regex_replace(text, std::regex("Tiled of [^(]*\\([^)]*\\)"), "Tiled of (a matrix)");
    text = std::regex_replace(text, std::regex("(tuning skipped|tuning of) [^:]*?(:| given up| goes without)"),
                              "$1 (it)$2");
    return text;
  }

 private:
  static constexpr int largest = 128;
  static constexpr std::size_t operand_bytes = largest * largest * sizeof(std::uint16_t);
  static constexpr Problem problem{.m = 16, .n = 16, .k = 128};
  const KernelConfig split = with_schedule(sm80_config, Schedule::split_k, 2, 0);
  const KernelConfig tma = in_clusters(with_schedule(sm90_config, Schedule::stream_k, 1, 2));
  const KernelConfig stream_k = with_schedule(sm80_config, Schedule::stream_k, 1, 3);
  const KernelConfig other = with_schedule(sm90_config, Schedule::data_parallel, 1, 0);
  const KernelConfig another = with_schedule(sm90_config, Schedule::split_k, 2, 0);

  static KernelConfig in_clusters(KernelConfig config) { return config.cluster_m = 2, config; }
  struct WithCurrent {
    explicit WithCurrent(CUcontext context) : before(std::exchange(FakeGpu::current, context)), given(context) {}
    ~WithCurrent() {
      if (FakeGpu::current == given) FakeGpu::current = before;
    }
    CUcontext before, given;
  };
  /// Swaps the memory of D while it lives.
  struct OnPeer {
    OnPeer(FakeGpu::Made made, void*& own, void*& peer) : own(own), peer(peer) {
      std::swap(own, peer);
      FakeGpu::pointer_device = 1;
      FakeGpu::pointer_made = made;
      FakeGpu::pointer_access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    ~OnPeer() {
      std::swap(own, peer);
      FakeGpu::pointer_device = 0;
      FakeGpu::pointer_made = FakeGpu::Made::by_allocation;
    }
    OnPeer(const OnPeer&) = delete;
    OnPeer& operator=(const OnPeer&) = delete;
    void *&own, *&peer;
  };
  struct Forget {
    ~Forget() { Faults::always.clear(); }
  };
  static Forget finally() { return {}; }
  static void require(bool ok, const char* what) {
    if (!ok) throw std::runtime_error(std::string("not so: ") + what);
  }

  ContextOptions options() const {
    return {.tuning = Tuning::on, .tuning_budget_seconds = 60, .cache_dir = cache_.path().string()};
  }

  static Stream stream() { return reinterpret_cast<Stream>(std::uintptr_t(0x5000)); }

  struct Capture {
    Capture() { FakeGraphs::begin(stream()); }
    ~Capture() { FakeGraphs::destroy(end()); }
    CUgraph end() const { return graph ? graph : graph = FakeGraphs::end(stream()); }
    mutable CUgraph graph = nullptr;
  };

  void run(const Problem& what, const KernelConfig* config) {
    enqueue(what, config);
    check(what);
  }
  void enqueue(const Problem& what, const KernelConfig* config) {
    std::memset(memory_[2], 0xff, operand_bytes);
    const Operands operands{.a = memory_[0], .b = memory_[1], .d = memory_[2]};
    config ? context_->gemm(what, operands, stream(), *config) : context_->gemm(what, operands, stream());
  }
  void check(const Problem& what) {
    for (int i = 0; i < what.m; ++i) {
      for (int j = 0; j < what.n; ++j) {
        double sum = 0;
        for (int l = 0; l < what.k; ++l)
          sum += load(memory_[0], i * what.k + l, f16) * load(memory_[1], l * what.n + j, f16);
        require(load(memory_[2], i * what.n + j, f16) == sum, "D is right");
      }
    }
  }

  /// Where syncing costs nothing.
  struct InMemory {
    ScopedEnvironment folder{"TMPDIR", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::getenv("TMPDIR")};
    TemporaryDirectory made;
    const std::filesystem::path& path() const { return made.path(); }
  };
  const InMemory cache_;
  std::optional<CapturedLog> log_{std::in_place};
  cuda::DriverApi driver_;
  cuda::NvrtcApi nvrtc_;
  void* memory_[3] = {};
  void* peer_memory_[2] = {};
  std::optional<AnyContext> context_;
};

template <typename AnyContext>
struct Step {
  const char* name;
  void (Scenario<AnyContext>::*run)();
  std::optional<ErrorCode> fails = {};  ///< what it ends with without a further fault
  bool tunes = false;                   ///< keeps fewer kernels when something fails
  std::size_t keeps_each_time = 0;      ///< what every call keeps that succeeds
};
template <typename AnyContext>
inline const std::vector<Step<AnyContext>> steps{
    {"loading the driver", &Scenario<AnyContext>::load_driver},
    {"loading NVRTC", &Scenario<AnyContext>::load_nvrtc},
    {"cuda_devices()", &Scenario<AnyContext>::list_devices},
    {"Context()", &Scenario<AnyContext>::make_context},
    {"a Context's life in the thread's own CUDA context", &Scenario<AnyContext>::make_context_in_own},
    {"compile()", &Scenario<AnyContext>::compile},
    {"gemm(), cached on disk", &Scenario<AnyContext>::gemm_split},
    {"gemm() again", &Scenario<AnyContext>::gemm_split},
    {"gemm() into memory of another device", &Scenario<AnyContext>::gemm_to_peer},
    {"gemm(), new, by TMA", &Scenario<AnyContext>::gemm_tma},
    {"gemm(), captured", &Scenario<AnyContext>::gemm_captured},
    {"gemm(), captured by an older driver", &Scenario<AnyContext>::gemm_captured_by_older_driver},
    {"gemm(), captured by a graph that holds nothing", &Scenario<AnyContext>::gemm_captured_in_vain,
     ErrorCode::not_capturable},
    {"gemm(), refused by the driver", &Scenario<AnyContext>::gemm_refused, ErrorCode::load_failed},
    {"compile(), refused by NVRTC", &Scenario<AnyContext>::compile_refused, ErrorCode::compile_failed},
    {"gemm() that tunes first", &Scenario<AnyContext>::gemm_tuned, {}, true},
    {"tune()", &Scenario<AnyContext>::tune, {}, true},
    {"~Context()", &Scenario<AnyContext>::end},
};

}  // namespace jitgemm::test
