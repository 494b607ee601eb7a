// What serves a problem's first calls while its kernel compiles, on a GPU that is none and a compiler that waits for
// the test.
#include <condition_variable>
#include <thread>

#include "backend/cuda/cuda_backend.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "jitgemm/jitgemm.hpp"
#include "no_threads.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Compiles pass only while it is open.
struct Gate {
  static inline std::mutex mutex;
  static inline std::condition_variable changed;
  static inline bool is_open = true;
  static inline int waiting = 0;
  static inline nvrtcResult result = NVRTC_SUCCESS;

  static void set(bool open) {
    const std::lock_guard lock(mutex);
    is_open = open;
    changed.notify_all();
  }
  static void await_waiting(int count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [count] { return waiting == count; });
  }
  static nvrtcResult compile(nvrtcProgram program, int, const char* const*) {
    std::unique_lock lock(mutex);
    ++waiting;
    changed.notify_all();
    changed.wait(lock, [] { return is_open; });
    --waiting;
    reinterpret_cast<FakeNvrtc::Program*>(program)->compiled = result == NVRTC_SUCCESS;
    return result;
  }
};

class Fixture {
 public:
  Fixture() {
    FakeGpu::reset();
    FakeNvrtc::reset();
    Gate::is_open = true;
    Gate::result = NVRTC_SUCCESS;
    nvrtc_.compile_program = Gate::compile;
    cuda::driver_for_tests = &driver_;
    cuda::nvrtc_for_tests = &nvrtc_;
    for (const void** operand : {&operands.a, &operands.b}) *operand = FakeGpu::allocate(bytes);
    operands.d = FakeGpu::allocate(bytes);
    for (int i = 0; i < 128 * 128; ++i) {
      store(i % 5 - 2, const_cast<void*>(operands.a), i, f16);
      store(i % 7 - 3, const_cast<void*>(operands.b), i, f16);
    }
    options.tuning = Tuning::on;  // which measures nothing here
    options.compile_in_background = true;
    options.cache_dir = cache.path().string();
  }
  ~Fixture() {
    Gate::set(true);
    context.reset();
    cuda::driver_for_tests = nullptr;
    cuda::nvrtc_for_tests = nullptr;
    FakeGpu::reset();
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  /// With a fallback that writes `fallback_value`, or says that it cannot.
  void give_fallback(bool can = true) {
    options.fallback = [this, can](const Problem& problem, const Operands& given, Stream) {
      ++fallback_calls;
      if (can) store(fallback_value, given.d, 0, problem.d.type);
      return can;
    };
  }
  void call(const Problem& problem) {
    store(777, operands.d, 0, f16);
    context->gemm(problem, operands);
  }
  double d() const { return load(operands.d, 0, f16); }
  static double product(const Problem& problem) {
    double sum = 0;
    for (int l = 0; l < problem.k; ++l) sum += (l % 5 - 2) * (int(l * problem.n) % 7 - 3);
    return sum;
  }
  static constexpr std::size_t bytes = 128 * 128 * 2;
  static constexpr double fallback_value = 42;
  static constexpr Problem small{.m = 8, .n = 16, .k = 64}, other{.m = 128, .n = 128, .k = 128};
  const TemporaryDirectory cache;
  Operands operands;
  ContextOptions options;
  std::optional<Context> context;
  std::atomic<int> fallback_calls = 0;

 private:
  cuda::DriverApi driver_ = FakeGpu::api();
  cuda::NvrtcApi nvrtc_ = FakeNvrtc::api();
};

/// Calls until no stopgap serves any more.
void await_switch(Fixture& f, const Problem& problem) {
  for (int i = 0;; ++i) {
    const std::uint64_t before = f.context->counters().stopgaps;
    f.call(problem);
    if (f.context->counters().stopgaps == before) return;
    REQUIRE(i < 10'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

TEST_CASE("While a kernel compiles in the background, the fallback serves, and then the kernel", "[first_calls]") {
  Fixture f;
  f.give_fallback();
  f.context.emplace(f.options);
  Gate::set(false);
  for (int i = 1; i <= 3; ++i) {
    f.call(f.small);
    CHECK(f.d() == f.fallback_value);
    CHECK(f.fallback_calls == i);
  }
  Gate::await_waiting(1);
  CHECK(f.context->counters().stopgaps == 3);
  CHECK(f.context->counters().launches == 0);
  CHECK(f.context->counters().compiles == 1);
  Gate::set(true);
  await_switch(f, f.small);
  CHECK(f.d() == f.product(f.small));
  const int calls = f.fallback_calls;
  f.call(f.small);
  CHECK(f.fallback_calls == calls);
  CHECK(f.context->counters().compiles == 1);
  CHECK(f.context->counters().tuned == 0);
}

TEST_CASE("While a kernel compiles in the background, one that is at hand serves", "[first_calls]") {
  Fixture f;
  f.context.emplace(f.options);
  f.call(f.small);  // nothing is at hand: the call waits
  CHECK(f.d() == f.product(f.small));
  CHECK(f.context->counters().stopgaps == 0);
  CHECK(f.context->counters().compiles == 1);
  REQUIRE(!(f.context->plan(f.small).config == f.context->plan(f.other).config));

  Gate::set(false);
  f.call(f.other);
  CHECK(f.d() == f.product(f.other));
  CHECK(f.context->counters().stopgaps == 1);
  CHECK(f.context->counters().launches == 2);
  Gate::set(true);
  await_switch(f, f.other);
  CHECK(f.d() == f.product(f.other));
  CHECK(f.context->counters().compiles == 2);

  // Another process finds the kernels on disk, so that nothing has to serve.
  f.context.emplace(f.options);
  f.call(f.other);
  CHECK(f.context->counters().stopgaps == 0);
  CHECK(f.context->counters().compiles == 0);
}

TEST_CASE("A kernel at hand serves meanwhile with a grid that keeps to the constraints", "[first_calls][constraints]") {
  for (const bool constrained : {false, true}) {
    Fixture f;
    if (constrained) f.options.constraints.sms = 1;
    f.context.emplace(f.options);
    KernelConfig looping = f.context->plan(f.small).config;  // a kernel for one tile a CTA serves no smaller grid
    looping.schedule = Schedule::persistent;
    looping.stages = 3;
    f.context->gemm(f.small, f.operands, nullptr, looping);
    REQUIRE(f.context->plan(f.other, looping).ctas > 1);
    Gate::set(false);
    {
      std::jthread caller([&f] { f.call(f.other); });
      Gate::await_waiting(1);
      caller.join();  // once served, while the compiler waits
      CHECK(f.context->counters().stopgaps == 1);
      CHECK(f.d() == f.product(f.other));
      Gate::set(true);
    }
    CHECK(f.d() == f.product(f.other));
  }
}

TEST_CASE("A fallback that cannot do a call leaves it to wait", "[first_calls]") {
  Fixture f;
  f.give_fallback(false);
  f.context.emplace(f.options);
  f.call(f.small);
  CHECK(f.d() == f.product(f.small));
  CHECK(f.fallback_calls == 1);
  CHECK(f.context->counters().stopgaps == 0);
  CHECK(f.context->counters().compiles == 1);
}

TEST_CASE("What a fallback throws reaches the caller, and the kernel comes all the same", "[first_calls]") {
  Fixture f;
  f.options.fallback = [](const Problem&, const Operands&, Stream) -> bool {
    throw std::runtime_error("cannot today");
  };
  f.context.emplace(f.options);
  Gate::set(false);
  CHECK_THROWS_WITH(f.call(f.small), ContainsSubstring("cannot today"));
  Gate::await_waiting(1);
  Gate::set(true);
  for (int i = 0; i < 10'000 && f.d() != f.product(f.small); ++i) {
    try {
      f.call(f.small);
    } catch (const std::runtime_error&) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(f.d() == f.product(f.small));
}

TEST_CASE("A call that is captured, or has a configuration of its own, is not served meanwhile", "[first_calls]") {
  Fixture f;
  f.give_fallback();
  f.context.emplace(f.options);
  FakeGraphs::begin(nullptr);
  f.call(f.small);
  const CUgraph graph = FakeGraphs::end(nullptr);
  CHECK(f.fallback_calls == 0);
  CHECK(FakeGraphs::launch(graph) == CUDA_SUCCESS);
  FakeGraphs::destroy(graph);
  CHECK(f.d() == f.product(f.small));
  const KernelConfig pinned{.main_loop = MainLoop::sm80, .block_m = 64, .block_n = 64, .block_k = 32, .stages = 3};
  f.context->gemm(f.other, f.operands, nullptr, pinned);
  CHECK(f.fallback_calls == 0);
  CHECK(f.context->counters().stopgaps == 0);
}

TEST_CASE("A kernel that does not compile in the background is the next call's error, and every later one's",
          "[first_calls]") {
  Fixture f;
  f.give_fallback();
  f.context.emplace(f.options);
  Gate::result = NVRTC_ERROR_COMPILATION;
  Gate::set(false);
  f.call(f.small);
  CHECK(f.d() == f.fallback_value);
  Gate::set(true);
  const auto error = [&] { return refusal(ErrorCode::compile_failed, [&] { f.call(f.small); }); };
  for (int i = 0; i < 10'000 && error().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int i = 0; i < 3; ++i) CHECK_THAT(error(), ContainsSubstring("made_to_fail"));
}

TEST_CASE("Where no thread can be started, a call compiles its kernel itself", "[first_calls]") {
  Fixture f;
  f.give_fallback();
  f.context.emplace(f.options);
  CapturedLog log;
  {
    const NoThreads none;
    REQUIRE_THROWS_AS(std::thread([] {}), std::system_error);
    for (const Problem& problem : {f.small, f.other}) {
      f.call(problem);
      CHECK(f.d() == f.product(problem));
    }
    CHECK(f.fallback_calls == 0);
    CHECK(log.count("no thread can be started") == 1);
  }
  const TemporaryDirectory other_cache;
  f.options.cache_dir = other_cache.path().string();
  f.context.emplace(f.options);
  Gate::set(false);
  f.call(f.small);
  CHECK(f.d() == f.fallback_value);
  {
    const NoThreads none;  // besides the one that compiles now: it takes what comes
    f.call(f.other);
    CHECK(f.d() == f.fallback_value);
  }
  Gate::set(true);
  await_switch(f, f.other);
  CHECK(f.d() == f.product(f.other));
}

TEST_CASE("A Context ends while a kernel compiles in the background, and drops those that have not begun",
          "[first_calls]") {
  Fixture f;
  f.give_fallback();
  f.context.emplace(f.options);
  Gate::set(false);
  Problem problem = f.small;
  for (problem.k = 16; problem.k <= 128; problem.k += 16)
    for (problem.m = 8; problem.m <= 128; problem.m += 24) f.call(problem);
  std::jthread opener([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Gate::set(true);
  });
  f.context.reset();
  CHECK(FakeNvrtc::alive.empty());
}

TEST_CASE("A forked child may end its parent's Context, whose threads it does not have", "[first_calls]") {
  Fixture f;
  f.give_fallback();
  f.context.emplace(f.options);
  const auto end_in_child = [&] {
    return wait_for(spawn([&] {
      alarm(20);
      f.context.reset();
      return 0;
    }));
  };
  Gate::set(false);
  f.call(f.small);
  Gate::await_waiting(1);
  CHECK(end_in_child() == 0);  // while a thread compiles
  Gate::set(true);
  await_switch(f, f.small);
  CHECK(f.d() == f.product(f.small));
  CHECK(end_in_child() == 0);  // while it waits for the next job
}

TEST_CASE("Threads that ask for one new problem at once compile its kernel once", "[first_calls]") {
  Fixture f;
  f.give_fallback();
  f.context.emplace(f.options);
  Gate::set(false);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&f] {
        const Operands mine{.a = f.operands.a, .b = f.operands.b, .d = FakeGpu::allocate(f.bytes)};
        for (int j = 0; j < 20; ++j) f.context->gemm(f.small, mine);
      });
  }
  CHECK(f.context->counters().stopgaps == 160);
  CHECK(f.fallback_calls == 160);
  Gate::set(true);
  await_switch(f, f.small);
  CHECK(f.context->counters().compiles == 1);
}

TEST_CASE("A workspace of the size that was asked for does for whatever serves meanwhile", "[first_calls]") {
  Fixture f;
  f.context.emplace(f.options);
  for (const Problem& problem : {Problem{.m = 8, .n = 8, .k = 1024}, Problem{.m = 64, .n = 64, .k = 128}, f.small}) {
    f.operands.workspace_bytes = f.context->workspace_size(problem);
    f.operands.workspace = f.operands.workspace_bytes ? FakeGpu::allocate(f.operands.workspace_bytes) : nullptr;
    CHECK_NOTHROW(f.call(problem));
    CHECK(f.d() == f.product(problem));
  }
}

TEST_CASE("A fallback without a compile in the background is refused", "[first_calls]") {
  Fixture f;
  f.give_fallback();
  f.options.compile_in_background = false;
  CHECK_THROWS_WITH(Context(f.options), ContainsSubstring("set compile_in_background"));
}
