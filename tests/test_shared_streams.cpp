// Threads that share a stream, a workspace, a Context and a capture. On FakeGpu, whose kernels compute at once, so that the order of
// launches is all that decides.
#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/nvrtc.hpp"
#include "catch.hpp"
#include "errors.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr int size = 16, depth = 33;  // of which TMA takes no row
constexpr Problem problem{.m = size, .n = size, .k = depth};

/// Packs A, whose rows are not aligned.
KernelConfig packing_config() {
  return {.main_loop = MainLoop::sm90, .block_m = 64, .block_n = 16, .block_k = 64, .stages = 2, .pack_a = true};
}

/// A * B where A is `value` everywhere and B is 1.
struct Product {
  explicit Product(int value) : expected(value * depth) {
    operands.a = filled(size * depth, value);
    operands.b = filled(depth * size, 1);
    operands.d = filled(size * size, -1);
  }
  static void* filled(int elements, double x) {
    void* const memory = FakeGpu::allocate(std::size_t(elements) * 2);
    for (int i = 0; i < elements; ++i) store(x, memory, i, f16);
    return memory;
  }
  /// Whether D is right; it is not any more then.
  bool take() {
    bool right = true;
    for (int i = 0; i < size * size; ++i) {
      right &= load(operands.d, i, f16) == expected;
      store(-1, operands.d, i, f16);
    }
    return right;
  }

  Operands operands;
  double expected;
};

struct Fixture {
  Fixture() {
    FakeGpu::reset();
    FakeNvrtc::reset();
    FakeGpu::slow_packing = true;
    cuda::driver_for_tests = &driver;
    cuda::nvrtc_for_tests = &nvrtc;
    context.emplace(ContextOptions{.tuning = Tuning::off, .cache_dir = cache.path().string()});
  }
  ~Fixture() {
    context.reset();
    cuda::driver_for_tests = nullptr;
    cuda::nvrtc_for_tests = nullptr;
    FakeGpu::reset();
  }

  const TemporaryDirectory cache;
  cuda::DriverApi driver = FakeGpu::api();
  cuda::NvrtcApi nvrtc = FakeNvrtc::api();
  std::optional<Context> context;
};

/// Wrong results of threads that each multiply what is theirs.
int wrong_results(int threads, int calls, const std::function<void(Product&)>& multiply) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      Product product(i + 1);
      for (int call = 0; call < calls; ++call) {
        multiply(product);
        wrong += !product.take();
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  return wrong;
}

}  // namespace

TEST_CASE("Threads that share a stream multiply what is their own, with packed operands", "[context][threads]") {
  Fixture f;
  const KernelConfig config = packing_config();
  const Stream stream = GENERATE(Stream(nullptr), reinterpret_cast<Stream>(std::uintptr_t(0x500)));
  CHECK(wrong_results(4, 100, [&](Product& p) { f.context->gemm(problem, p.operands, stream, config); }) == 0);
}

TEST_CASE("Threads that share a stream and a workspace of their own multiply what is their own", "[context][threads]") {
  Fixture f;
  const KernelConfig config = packing_config();
  const std::size_t bytes = f.context->workspace_size(problem, config);
  REQUIRE(bytes > 0);
  void* const workspace = FakeGpu::allocate(bytes);
  CHECK(wrong_results(4, 100, [&](Product& p) {
          p.operands.workspace = workspace;
          p.operands.workspace_bytes = bytes;
          f.context->gemm(problem, p.operands, nullptr, config);
        }) == 0);
}

TEST_CASE("Threads that capture into one graph multiply what is their own when it is launched", "[context][threads][capture]") {
  Fixture f;
  const KernelConfig config = packing_config();
  FakeGraphs::begin(nullptr);
  std::vector<Product> products;
  for (int i = 0; i < 40; ++i) products.emplace_back(i % 9 + 1);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t j = i; j < products.size(); j += 4) f.context->gemm(problem, products[j].operands, nullptr, config);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const CUgraph graph = FakeGraphs::end(nullptr);
  CHECK(f.context->counters().workspace_bytes == 0);
  CHECK(f.context->counters().graph_workspace_bytes == f.context->workspace_size(problem, config));
  for (int replay = 0; replay < 2; ++replay) {
    f.context->trim();
    REQUIRE(FakeGraphs::launch(graph) == CUDA_SUCCESS);
    int wrong = 0;
    for (Product& product : products) wrong += !product.take();
    CHECK(wrong == 0);
  }
  FakeGraphs::destroy(graph);
  Product next(3);
  f.context->gemm(problem, next.operands, nullptr, config);
  CHECK(next.take());
  CHECK(f.context->counters().graph_workspace_bytes == 0);
}

TEST_CASE("A call that fails in mid-capture leaves nothing captured that points to freed memory", "[context][capture]") {
  Fixture f;
  const KernelConfig config = packing_config();
  Product product(2);
  f.context->gemm(problem, product.operands, nullptr, config);  // compiled and loaded
  CHECK(product.take());
  static int launches_left = 0;
  static decltype(f.driver.launch_kernel_ex) real;
  real = f.driver.launch_kernel_ex;
  launches_left = 1;
  f.driver.launch_kernel_ex = [](const CUlaunchConfig* c, CUfunction k, void** parameters, void** extra) {
    return launches_left-- > 0 ? real(c, k, parameters, extra) : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  };
  FakeGraphs::begin(nullptr);
  CHECK(error_of([&] { f.context->gemm(problem, product.operands, nullptr, config); }).code() == ErrorCode::launch_failed);
  const CUgraph graph = FakeGraphs::end(nullptr);
  launches_left = 1 << 20;
  f.context->trim();
  f.context->gemm(problem, product.operands, nullptr, config);
  CHECK(FakeGraphs::launch(graph) == CUDA_SUCCESS);  // the packing kernel alone, which FakeGpu keeps from freed memory
  FakeGraphs::destroy(graph);
  f.driver.launch_kernel_ex = real;
}

TEST_CASE("A workspace of any size does, whatever the alignment of the pointers", "[context]") {
  Fixture f;
  Product product(2);
  const std::size_t wanted = f.context->workspace_size(problem);
  for (const std::size_t bytes : {std::size_t(0), std::size_t(256), wanted, wanted + (1 << 20)}) {
    product.operands.workspace = FakeGpu::allocate(std::max<std::size_t>(bytes, 1));
    product.operands.workspace_bytes = bytes;
    f.context->gemm(problem, product.operands);
    CHECK(product.take());
  }
  const Error pinned = error_of([&] {
    product.operands.workspace_bytes = 0;
    f.context->gemm(problem, product.operands, nullptr, packing_config());
  });
  CHECK(pinned.code() == ErrorCode::workspace_too_small);
}
