// What happens where clusters, or blocks, can never be resident on a stream's part of the device: on a driver that says
// so, and on a GPU in a green context of few SMs.
#include <dlfcn.h>

#include "catch.hpp"
#include "cuda_fixtures.hpp"
#include "errors.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "jitgemm/jitgemm.hpp"
#include "kernels/legality.hpp"
#include "kernels/parameters.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const auto confined = reinterpret_cast<Stream>(std::uintptr_t(0x7000)),
           narrow = reinterpret_cast<Stream>(std::uintptr_t(0x7100));

/// A CUDA device that is none; launches of clusters that a stream cannot hold fail as a driver has them fail.
class Fixture {
 public:
  Fixture() {
    FakeGpu::reset();
    FakeNvrtc::reset();
    static CUresult (*launch)(const CUlaunchConfig*, CUfunction, void**, void**);
    launch = driver_.launch_kernel_ex;
    driver_.launch_kernel_ex = [](const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
      const unsigned size = cluster_of(*config);
      if (size > FakeGpu::largest_cluster(config->hStream)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      if (config->sharedMemBytes > FakeGpu::most_smem_bytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
      const CUresult result = launch(config, function, parameters, extra);
      launched.push_back(size);
      return result;
    };
    launched.clear();
    cuda::driver_for_tests = &driver_;
    cuda::nvrtc_for_tests = &nvrtc_;
    operands.a = FakeGpu::allocate(std::size_t(problem.m * problem.k) * 2);
    operands.b = FakeGpu::allocate(std::size_t(problem.k * problem.n) * 2);
    operands.d = FakeGpu::allocate(std::size_t(problem.m * problem.n) * 2);
    for (int i = 0; i < problem.m * problem.k; ++i) store(i % 3 - 1, const_cast<void*>(operands.a), i, f16);
    for (int i = 0; i < problem.n * problem.k; ++i) store(i % 5 - 2, const_cast<void*>(operands.b), i, f16);
  }
  ~Fixture() {
    context.reset();
    cuda::driver_for_tests = nullptr;
    cuda::nvrtc_for_tests = nullptr;
    FakeGpu::reset();
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  void make_context(const ContextOptions& more = {}) {
    ContextOptions options = more;
    if (!options.tuning) options.tuning = Tuning::off;
    options.cache_dir = cache.path().string();
    context.emplace(options);
  }
  /// Calls, checks D's first element and returns the cluster that was launched last.
  unsigned call(Stream stream, const KernelConfig* pinned = nullptr) {
    store(777, operands.d, 0, f16);
    pinned ? context->gemm(problem, operands, stream, *pinned) : context->gemm(problem, operands, stream);
    return check();
  }
  /// The same by a graph.
  unsigned capture(Stream stream) {
    store(777, operands.d, 0, f16);
    FakeGraphs::begin(stream);
    context->gemm(problem, operands, stream);
    const CUgraph graph = FakeGraphs::end(stream);
    CHECK(FakeGraphs::launch(graph) == CUDA_SUCCESS);
    FakeGraphs::destroy(graph);
    return check();
  }
  unsigned check() const {
    double sum = 0;
    for (int k = 0; k < problem.k; ++k) sum += (k % 3 - 1) * (int(k * problem.n) % 5 - 2);
    CHECK(load(operands.d, 0, f16) == sum);
    return launched.back();
  }

  static constexpr Problem problem{.m = 64, .n = 128, .k = 2048};
  static inline std::vector<unsigned> launched;
  const TemporaryDirectory cache;
  Operands operands;
  std::optional<Context> context;

 private:
  static unsigned cluster_of(const CUlaunchConfig& config) {
    for (unsigned i = 0; i < config.numAttrs; ++i)
      if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) return config.attrs[i].value.clusterDim.x;
    return 1;
  }
  cuda::DriverApi driver_ = FakeGpu::api();
  cuda::NvrtcApi nvrtc_ = FakeNvrtc::api();
};

}  // namespace

TEST_CASE("Clusters that the device can never hold give way to the best choice that it can, said once",
          "[residency][context]") {
  Fixture f;
  f.make_context();
  const unsigned chosen = unsigned(cluster_size_of(f.context->plan(f.problem).config));
  REQUIRE(chosen > 1);
  const CapturedLog log;
  for (const unsigned most : {chosen, chosen / 2, 1u}) {
    f.make_context();
    FakeGpu::most_clustered = most;
    CHECK(f.call(nullptr) <= most);
    const auto compiles = f.context->counters().compiles;
    CHECK(f.call(nullptr) <= most);
    CHECK(f.context->counters().compiles == compiles);
    CHECK(f.launched.size() == 2);  // none was tried in vain
    f.launched.clear();
  }
  CHECK(log.count("can never be resident") == 2);
}

TEST_CASE("A stream with less of the device than the first one gets what it can hold, and the others keep theirs",
          "[residency][context]") {
  Fixture f;
  f.make_context();
  const unsigned chosen = f.call(nullptr);
  REQUIRE(chosen > 1);
  FakeGpu::most_clustered_on = {{confined, chosen / 2}, {narrow, 1}};
  for (int round = 0; round < 3; ++round) {
    CHECK(f.call(confined) <= chosen / 2);
    CHECK(f.call(narrow) == 1);
    CHECK(f.call(nullptr) == chosen);
  }
  const auto compiles = f.context->counters().compiles;
  for (const Stream stream : {confined, narrow, Stream(nullptr)}) f.call(stream);
  CHECK(f.context->counters().compiles == compiles);
}

TEST_CASE("A captured first call, a tuned one and one with constraints fall back, too", "[residency][context]") {
  Fixture f;
  FakeGpu::most_clustered_on = {{confined, 1}};
  f.make_context();
  CHECK(f.capture(confined) == 1);
  for (const Constraints& constraints : {Constraints{.batch_invariant = true}, Constraints{.workspace_bytes = 0}}) {
    f.make_context({.constraints = constraints});
    CHECK(f.call(confined) == 1);
  }
  f.make_context(
      {.tuning = Tuning::on, .tuning_budget_seconds = 0.2});  // on streams of the backend's own, which hold all
  CHECK(f.call(confined) == 1);
}

TEST_CASE("What the caller pins is refused with one error where it can never be resident", "[residency][context]") {
  Fixture f;
  f.make_context();
  KernelConfig config = sm90_config;
  config.block_m = 64, config.warps = 4, config.cluster_m = 4;
  CHECK(f.call(nullptr, &config) == 4);
  FakeGpu::most_clustered_on = {{confined, 2}};
  const Error error = error_of([&] { f.call(confined, &config); });
  CHECK(error.code() == ErrorCode::invalid_config);
  CHECK_THAT(error.what(), ContainsSubstring("clusters of 4 thread blocks can never be resident"));
  CHECK_THAT(error.config(), ContainsSubstring("cluster=4x1x1"));
  config.cluster_m = 2;
  CHECK(f.call(confined, &config) == 2);
}

TEST_CASE("Blocks that can never be resident give way to smaller ones, and an error says when there are none",
          "[residency][context]") {
  Fixture f;
  f.make_context();
  FakeGpu::most_smem_bytes = 60 << 10;
  FakeGpu::most_clustered = 1;
  CHECK(f.call(nullptr) == 1);
  f.make_context();
  FakeGpu::most_smem_bytes = 1 << 10;
  const Error error = error_of([&] { f.call(nullptr); });
  CHECK(error.code() == ErrorCode::launch_failed);
  CHECK_THAT(error.what(), ContainsSubstring("no choice asks for less"));
}

TEST_CASE("A launch that fails for another reason is not tried again", "[residency][context]") {
  Fixture f;
  f.make_context();
  f.call(nullptr);
  f.launched.clear();
  FakeGpu::failure = CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto before = FakeGpu::calls.load();
  f.call(nullptr);
  const int calls = FakeGpu::calls - before;
  f.launched.clear();
  for (int call = 1; call <= calls; ++call) {
    FakeGpu::failing_call = FakeGpu::calls + call;
    const auto error = error_if_any([&] { f.context->gemm(f.problem, f.operands); });
    FakeGpu::failing_call = 0;
    if (error) CHECK(error->code() != ErrorCode::invalid_config);
    CHECK(f.launched.size() <= 1);
    f.launched.clear();
  }
}

namespace {

/// What a green context takes, by the names of CUDA 12.4; null where the driver is older.
struct GreenApi {
  decltype(&cuDeviceGetDevResource) device_get_resource = nullptr;
  decltype(&cuDevSmResourceSplitByCount) split_by_count = nullptr;
  decltype(&cuDevResourceGenerateDesc) generate_descriptor = nullptr;
  decltype(&cuGreenCtxCreate) create = nullptr;
  decltype(&cuGreenCtxDestroy) destroy = nullptr;
  decltype(&cuCtxFromGreenCtx) context_of = nullptr;
  decltype(&cuGreenCtxStreamCreate) create_stream = nullptr;

  GreenApi() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto bind = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    };
    bind(device_get_resource, "cuDeviceGetDevResource");
    bind(split_by_count, "cuDevSmResourceSplitByCount");
    bind(generate_descriptor, "cuDevResourceGenerateDesc");
    bind(create, "cuGreenCtxCreate");
    bind(destroy, "cuGreenCtxDestroy");
    bind(context_of, "cuCtxFromGreenCtx");
    bind(create_stream, "cuGreenCtxStreamCreate");
  }
  bool complete() const {
    return device_get_resource && split_by_count && generate_descriptor && create && destroy && context_of &&
           create_stream;
  }
};

/// A green context of about so many SMs of device 0, with a stream; why not, where there is none. `flags` are those of
/// the split.
class GreenContext {
 public:
  GreenContext(const GreenApi& api, unsigned sms, unsigned flags) : api_(api) {
    CUdevResource all{}, part{}, rest{};
    unsigned groups = 1;
    CUdevResourceDesc descriptor = nullptr;
    const auto works = [&](CUresult result, const char* call) {
      if (why_not.empty() && result != CUDA_SUCCESS)
        why_not = std::string(call) + " answers " + std::to_string(int(result));
      return why_not.empty();
    };
    if (!works(api.device_get_resource(0, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource") ||
        !works(api.split_by_count(&part, &groups, &all, &rest, flags, sms), "cuDevSmResourceSplitByCount") ||
        !works(api.generate_descriptor(&descriptor, &part, 1), "cuDevResourceGenerateDesc") ||
        !works(api.create(&green_, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM), "cuGreenCtxCreate"))
      return;
    sm_count = part.sm.smCount;
    if (works(api.context_of(&context, green_), "cuCtxFromGreenCtx"))
      works(api.create_stream(&stream, green_, CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate");
  }
  ~GreenContext() {
    if (stream) cuda::driver().stream_destroy(stream);
    if (green_) api_.destroy(green_);
  }
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;

  std::string why_not;
  unsigned sm_count = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;

 private:
  const GreenApi& api_;
  CUgreenCtx green_ = nullptr;
};

/// Makes a context the thread's current one while it lives.
class Current {
 public:
  explicit Current(CUcontext context) { require(cuda::driver().ctx_push_current(context)); }
  ~Current() {
    CUcontext popped = nullptr;
    cuda::driver().ctx_pop_current(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

}  // namespace

TEST_CASE("In green contexts of few SMs results are right, whichever context the Context was made in",
          "[gpu][residency]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const GreenApi api;
  if (!api.complete()) SKIP("the driver has no green contexts: it is older than CUDA 12.4");
  const auto backend = make_cuda_backend();
  if (!backend->device().has_wgmma()) SKIP("only the Hopper loop has clusters");
  int tried = 0;
  // With 1 (ignore co-scheduling) the SMs of a part may be such that they hold no cluster.
  for (const unsigned flags : {0u, unsigned(CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING)}) {
    for (const unsigned sms : {2u, 4u, 8u, 16u}) {
      const GreenContext green(api, sms, flags);
      INFO(sms << " SMs asked for, flags " << flags << ", " << green.sm_count << " got: " << green.why_not);
      if (!green.why_not.empty()) {
        WARN("not tried: " << green.why_not << " for " << sms << " SMs with flags " << flags);
        continue;
      }
      ++tried;
      const auto check = [&](Context& context, Backend& memory, Stream stream) {
        for (const Problem& problem : {Problem{.m = 512, .n = 512, .k = 512}, Problem{.m = 64, .n = 128, .k = 8192},
                                       Problem{.m = 129, .n = 255, .k = 511}}) {
          DeviceOperands device(memory, problem);
          context.gemm(problem, device.operands, stream);
          memory.synchronize(stream);
          CHECK(device.violation(MainLoop::sm90) == "");
        }
        const Problem problem{.m = 512, .n = 512, .k = 512};
        DeviceOperands device(memory, problem);
        for (const auto& [m, n, k] : {std::array{2, 1, 1}, {1, 4, 1}, {4, 2, 1}, {1, 1, 8}}) {
          KernelConfig config = sm90_config;
          config.block_m = 64, config.warps = 4, config.cluster_m = m, config.cluster_n = n, config.cluster_k = k;
          INFO(to_string(config));
          device.poison();
          try {
            context.gemm(problem, device.operands, stream, config);
            memory.synchronize(stream);
            CHECK(device.violation(MainLoop::sm90) == "");
          } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::invalid_config);
            CHECK_THAT(error.what(), ContainsSubstring("can never be resident"));
            WARN(green.sm_count << " SMs, flags " << flags << ": " << error.what());
          }
        }
      };
      const TemporaryDirectory cache;
      {
        INFO("a Context of the primary context");
        Context context(options_in(cache));
        check(context, *backend, nullptr);
        check(context, *backend, green.stream);
        check(context, *backend, nullptr);
      }
      {
        INFO("a Context of the green context");
        const Current current(green.context);
        const auto own = make_cuda_backend();
        Context context(options_in(cache));
        check(context, *own, nullptr);
        check(context, *own, green.stream);
      }
    }
  }
  if (tried == 0) SKIP("the driver makes no green context here");
}
