// TensorParallel on a CUDA device that is none: what it asks of the driver, what it leaves, captures, the time-out of
// calls that are on the device already. The other ranks do what this one does.
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "backend/cuda/cuda_backend.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "errors.hpp"
#include "fake_gpu.hpp"
#include "fake_nccl.hpp"
#include "fake_nvrtc.hpp"
#include "jitgemm/tensor_parallel.hpp"
#include "parallel/overlapped.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int size = 64;

class Fixture {
 public:
  Fixture() {
    FakeGpu::reset();
    FakeNvrtc::reset();
    cuda::driver_for_tests = &driver;
    cuda::nvrtc_for_tests = &nvrtc;
    nccl.alone = true;
    for (void*& operand : memory) operand = FakeGpu::allocate(size * size * 2);
    for (int i = 0; i < size * size; ++i) {
      store(i % 5 - 2, memory[0], i, f16);
      store(i % 7 - 3, memory[1], i, f16);
    }
    context.emplace(ContextOptions{.tuning = Tuning::off, .cache_dir = cache.path().string()});
    make();
  }
  ~Fixture() {
    FakeGpu::busy = false;
    parallel.reset();
    context.reset();
    cuda::driver_for_tests = nullptr;
    cuda::nvrtc_for_tests = nullptr;
    FakeGpu::reset();
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  static Stream stream(int number) { return reinterpret_cast<Stream>(std::uintptr_t(0x5000 + 16 * number)); }
  void make() { parallel.emplace(*context, nccl.communicator(0), TensorParallelOptions{.timeout_seconds = 0.2}); }
  Operands operands() const { return {.a = memory[0], .b = memory[1], .d = memory[2]}; }
  void gemm(const Problem& problem, Exchange exchange, Stream on = stream(0)) {
    parallel->gemm(problem, exchange, operands(), on);
  }

  /// Of both ranks' A, which are alike, or of both their sums.
  bool is_right(const Problem& problem, Exchange exchange) const {
    const Problem p = normalise(problem);
    const bool gathers = exchange == Exchange::all_gather_a;
    const std::int64_t rows = exchange == Exchange::reduce_scatter_d ? p.m / 2 : p.m;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < p.k; ++l)
          sum += load(memory[0], (gathers ? i % (p.m / 2) : i) * p.a.ld + l, f16) * load(memory[1], l * p.n + j, f16);
        if (load(memory[2], i * p.n + j, f16) != (gathers ? sum : 2 * sum)) return false;
      }
    }
    return true;
  }
  void poison() { std::memset(memory[2], 0xff, size * size * 2); }

  const TemporaryDirectory cache;
  FakeNccl nccl{2};
  cuda::DriverApi driver = FakeGpu::api();
  cuda::NvrtcApi nvrtc = FakeNvrtc::api();
  void* memory[3] = {};
  std::optional<Context> context;
  std::optional<TensorParallel> parallel;
};

/// A device that does no more than the test says: events pass in the order in which they were recorded.
struct Timeline {
  static inline std::mutex mutex;
  static inline std::map<CUevent, int> at;
  static inline int recorded = 0, passed = 0;

  explicit Timeline(Fixture& f) {
    at.clear();
    recorded = passed = 0;
    f.driver.event_record = [](CUevent event, CUstream) {
      const std::lock_guard lock(mutex);
      at[event] = ++recorded;
      return CUDA_SUCCESS;
    };
    f.driver.event_query = [](CUevent event) {
      const std::lock_guard lock(mutex);
      return at[event] <= passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
  }
};

const Problem plain{.m = 16, .n = 16, .k = 32};
constexpr Exchange all[] = {Exchange::all_gather_a, Exchange::reduce_scatter_d, Exchange::all_reduce_d};

}  // namespace

TEST_CASE("Each exchange works on a CUDA device, also of rows that lie apart", "[parallel][cuda]") {
  Fixture f;
  for (const Exchange exchange : all) {
    CAPTURE(to_string(exchange));
    for (const int lda : {0, 40}) {
      Problem problem = plain;
      problem.a.ld = lda;
      f.poison();
      f.gemm(problem, exchange);
      CHECK(f.is_right(problem, exchange));
    }
  }
}

TEST_CASE("Whichever call of the driver fails, there is an Error and nothing is left", "[parallel][cuda]") {
  const auto exchange = GENERATE(Exchange::all_gather_a, Exchange::reduce_scatter_d);
  Problem problem = plain;
  problem.a.ld = 40;
  Fixture f;
  f.gemm(problem, exchange);  // the kernels are the Context's
  f.parallel.reset();
  const auto before = FakeGpu::alive.size();
  int failed = 0;
  for (int call = 1;; ++call) {
    FakeGpu::calls = 0;
    FakeGpu::failing_call = call;
    const auto error = error_if_any([&] {
      f.make();
      f.gemm(problem, exchange);
    });
    FakeGpu::failing_call = 0;
    const bool reached = FakeGpu::calls >= call;
    f.parallel.reset();
    CAPTURE(call, to_string(exchange));
    CHECK(FakeGpu::alive.size() == before);
    if (!reached) break;
    if (!error) continue;  // of what only makes calls cheaper
    ++failed;
    CHECK_THAT(error->what(), ContainsSubstring("CUDA_ERROR") && ContainsSubstring("; "));
  }
  CHECK(failed > 20);
  f.make();
  f.poison();
  f.gemm(problem, exchange);
  CHECK(f.is_right(problem, exchange));
}

TEST_CASE("A prepared product may be captured, another may not", "[parallel][cuda]") {
  Fixture f;
  f.parallel->prepare(plain, Exchange::all_gather_a);
  FakeGraphs::begin(f.stream(0));
  f.gemm(plain, Exchange::all_gather_a);
  f.gemm(plain, Exchange::all_gather_a);
  const Error error = error_of([&] { f.gemm(plain, Exchange::all_reduce_d); });
  CHECK(error.code() == ErrorCode::not_capturable);
  CHECK_THAT(error.what(), ContainsSubstring("call prepare() with them on all ranks before the capture"));
  const CUgraph graph = FakeGraphs::end(f.stream(0));
  f.poison();
  REQUIRE(FakeGraphs::launch(graph) == CUDA_SUCCESS);
  CHECK(f.is_right(plain, Exchange::all_gather_a));

  // What needs more staging leaves alone what the graph uses.
  f.gemm({.m = 32, .n = 16, .k = 32}, Exchange::all_gather_a);
  f.poison();
  REQUIRE(FakeGraphs::launch(graph) == CUDA_SUCCESS);
  CHECK(f.is_right(plain, Exchange::all_gather_a));
  FakeGraphs::destroy(graph);
}

TEST_CASE("A stream's call waits for the one before on another stream, and no longer once that has ended",
          "[parallel][cuda]") {
  static std::atomic<int> waits;
  Fixture f;
  f.driver.stream_wait_event = [](CUstream, CUevent, unsigned) { return ++waits, CUDA_SUCCESS; };
  f.parallel->prepare(plain, Exchange::all_gather_a);
  waits = 0;
  f.gemm(plain, Exchange::all_gather_a, f.stream(1));
  CHECK(waits == 0);
  FakeGpu::busy = true;
  f.gemm(plain, Exchange::all_gather_a, f.stream(2));
  f.gemm(plain, Exchange::all_gather_a, f.stream(1));
  CHECK(waits == 2);
  FakeGpu::busy = false;
  f.gemm(plain, Exchange::all_gather_a, f.stream(2));
  CHECK(waits == 2);
}

TEST_CASE("A call that does not end within the time-out is a lost rank, and its memory stays", "[parallel][cuda]") {
  Fixture f;
  const Timeline timeline(f);
  f.parallel->prepare(plain, Exchange::reduce_scatter_d);  // the kernels are the Context's
  f.parallel.reset();
  const std::size_t without = FakeGpu::alive.size();
  f.make();
  f.parallel->prepare(plain, Exchange::reduce_scatter_d);
  FakeGpu::busy = true;
  Timeline::passed = Timeline::recorded + 1;
  for (int call = 0; call < 100; ++call) f.gemm(plain, Exchange::reduce_scatter_d);  // more than it has events for
  f.parallel->check();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const Error error = error_of([&] { f.parallel->check(); });
  CHECK(error.code() == ErrorCode::peer_lost);
  CHECK_THAT(error.what(), ContainsSubstring("rank 0: a call has not ended in 0.2 s, so rank 1 does not answer"));
  CHECK(error_of([&] { f.gemm(plain, Exchange::reduce_scatter_d); }).code() == ErrorCode::peer_lost);
  f.parallel.reset();
  CHECK(FakeGpu::alive.size() == without + 3);  // staging, and of exchanges the stream and memory
}

TEST_CASE("What the caller's stream does before a call is no other rank's silence", "[parallel][cuda]") {
  Fixture f;
  const Timeline timeline(f);
  f.parallel->prepare(plain, Exchange::reduce_scatter_d);
  const int before = Timeline::passed = Timeline::recorded;
  f.gemm(plain, Exchange::reduce_scatter_d);
  f.parallel->check();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  f.parallel->check();
  Timeline::passed = before + 1;  // the device is at it
  f.parallel->check();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(error_of([&] { f.parallel->check(); }).code() == ErrorCode::peer_lost);
  Timeline::passed = Timeline::recorded;
}

TEST_CASE("What calls in flight use is freed when they have ended", "[parallel][cuda]") {
  static std::atomic<int> freed_early;
  freed_early = 0;
  Fixture f;
  f.driver.mem_free = [](CUdeviceptr memory) {
    freed_early += FakeGpu::busy;
    return FakeGpu::api().mem_free(memory);
  };
  f.gemm(plain, Exchange::reduce_scatter_d);
  FakeGpu::busy = true;
  f.gemm(plain, Exchange::reduce_scatter_d);
  std::thread device([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    FakeGpu::busy = false;
  });
  f.parallel.reset();
  device.join();
  CHECK(freed_early == 0);
}

TEST_CASE("What only one rank cannot make for overlapping, none makes, and the ranks' exchanges stay the same",
          "[parallel][cuda][errors]") {
  static thread_local bool fails = false;
  Fixture f;
  f.nccl.alone = false;
  f.nccl.patience = std::chrono::seconds(5);
  f.driver.mem_host_alloc = [](void** memory, std::size_t bytes, unsigned flags) {
    return fails ? CUDA_ERROR_OUT_OF_MEMORY : FakeGpu::api().mem_host_alloc(memory, bytes, flags);
  };
  Problem problem{.m = 2048, .n = 512, .k = 512, .b = {.layout = Layout::column_major}};
  std::optional<Error> errors[2];
  on_each_rank(2, [&](int rank) {
    TensorParallel parallel(*f.context, f.nccl.communicator(rank), {.timeout_seconds = 10});
    if (!parallel.plan(problem, Exchange::all_gather_a).overlapped) throw std::runtime_error("not overlapped");
    fails = rank == 1;
    errors[rank] = error_if_any([&] { parallel.prepare(problem, Exchange::all_gather_a); });
    fails = false;
    parallel.prepare(problem, Exchange::all_gather_a);  // unfused, as ranks of one process
  });
  REQUIRE((errors[0] && errors[1]));
  CHECK(errors[0]->code() == ErrorCode::out_of_memory);
  CHECK(errors[1]->code() == ErrorCode::out_of_memory);
  CHECK_THAT(errors[0]->what(), ContainsSubstring("rank 1 of 2 could not go on, and so no rank does: "));
  CHECK_FALSE(f.nccl.ranks_disagreed);
}

TEST_CASE("What overlaps is made as a whole or not at all", "[parallel][cuda]") {
  static int until_failure;
  Fixture f;
  f.driver.event_create = [](CUevent* event, unsigned flags) {
    return --until_failure == 0 ? CUDA_ERROR_OUT_OF_MEMORY : FakeGpu::api().event_create(event, flags);
  };
  const auto make = [&] { Overlapped(*f.context, 0, 3, {}, 60); };
  until_failure = 0;
  make();  // the kernel is the Context's
  const auto before = FakeGpu::alive.size();
  for (const int event : {1, 2, 3}) {
    until_failure = event;
    CHECK(error_of(make).code() == ErrorCode::out_of_memory);
    CHECK(FakeGpu::alive.size() == before);
  }
}

TEST_CASE("The communicator's device has to be the Context's", "[parallel][cuda]") {
  Fixture f;
  f.nccl.device = 1;
  const Error error = error_of([&] { f.make(); });
  CHECK(error.code() == ErrorCode::communicator_failed);
  CHECK_THAT(error.what(), ContainsSubstring("the communicator is of device 1 and the Context of device 0"));
}
