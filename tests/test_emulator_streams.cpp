#include <atomic>
#include <cstring>
#include <thread>

#include "catch.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sample_configs.hpp"
#include "sandbox.hpp"
#include "test_emulator.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

// The host and other launches look on, so d's integers are read and written as atomics: d[0] is how many launches are
// under way, d[1] whether there were ever two, d[2] how many have ended, d[3] how many may begin their work.
const char* const body = R"(
__device__ void run(const Arguments& p) {
  int* d = static_cast<int*>(p.d);
  const bool leads = thread_index() == 0;
  if (leads && __atomic_add_fetch(&d[0], 1, __ATOMIC_SEQ_CST) > 1) __atomic_store_n(&d[1], 1, __ATOMIC_SEQ_CST);
  if (leads)
    while (__atomic_load_n(&d[3], __ATOMIC_SEQ_CST) < p.m) {
    }
  for (int i = 0; i < p.k; ++i) bar_sync(0, 32);
  if (leads) {
    __atomic_add_fetch(&d[2], 1, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&d[0], 1, __ATOMIC_SEQ_CST);
  }
}
)";

struct Kernel {
  std::unique_ptr<Backend> backend = make_emulator_backend({});
  std::unique_ptr<LoadedKernel> kernel =
      backend->load(backend->compile({emulator_text(body), "kernel", "sm_90a", "test"}), 0);
  int d[4] = {};

  int seen(int i) { return __atomic_load_n(&d[i], __ATOMIC_SEQ_CST); }
  /// `rounds` of work; it begins once `permits` are given.
  void launch(Stream stream, int rounds, int permits = 0) {
    device::Arguments arguments{};
    arguments.d = d;
    arguments.k = rounds;
    arguments.m = permits;
    backend->launch(*kernel, emulator_shape(1, 32, 0), bytes_of(arguments), stream);
  }
};

Stream stream_named(std::uintptr_t name) { return reinterpret_cast<Stream>(name); }

template <typename Body>
void in_threads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("Launches that threads give to one stream of the emulator follow each other", "[emulator][threads]") {
  for (const Stream stream : {stream_named(0), stream_named(0x40)}) {
    Kernel kernel;
    in_threads(8, [&](int) {
      for (int call = 0; call < 20; ++call) kernel.launch(stream, 50);
    });
    CHECK(kernel.seen(1) == 0);
    CHECK(kernel.seen(2) == 160);
  }
}

TEST_CASE("Backends of the emulator share their streams, as contexts of one device do", "[emulator][threads]") {
  Kernel kernel;
  const auto other = make_emulator_backend({});
  const auto others_kernel = other->load(other->compile({emulator_text(body), "kernel", "sm_90a", "test"}), 0);
  in_threads(4, [&](int i) {
    device::Arguments arguments{};
    arguments.d = kernel.d;
    arguments.k = 50;
    for (int call = 0; call < 20; ++call) {
      if (i % 2)
        kernel.launch(nullptr, 50);
      else
        other->launch(*others_kernel, emulator_shape(1, 32, 0), bytes_of(arguments), nullptr);
    }
  });
  CHECK(kernel.seen(1) == 0);
  CHECK(kernel.seen(2) == 80);
}

TEST_CASE("Launches on different streams of the emulator run at once", "[emulator][threads]") {
  Kernel kernel;
  in_threads(3, [&](int i) {
    if (i < 2) return kernel.launch(stream_named(i == 0 ? 0 : 0x40), 1, 1);
    while (kernel.seen(0) < 2) std::this_thread::yield();
    __atomic_store_n(&kernel.d[3], 1, __ATOMIC_SEQ_CST);
  });
  CHECK(kernel.seen(1) == 1);
  CHECK(kernel.seen(2) == 2);
}

TEST_CASE("Synchronising with a stream of the emulator, or an event on it, waits for other threads' launches",
          "[emulator][threads]") {
  for (const bool with_event : {false, true}) {
    Kernel kernel;
    const Stream stream = stream_named(0x40);
    int ended = -1;
    in_threads(2, [&](int i) {
      if (i == 0) return kernel.launch(stream, 2000, 1);
      while (kernel.seen(0) == 0) std::this_thread::yield();
      void* event = kernel.backend->create_event();
      kernel.backend->record_event(event, stream_named(0x80));  // of another stream: waits for nothing
      kernel.backend->synchronize(stream_named(0x80));
      __atomic_store_n(&kernel.d[3], 1, __ATOMIC_SEQ_CST);
      if (with_event)
        kernel.backend->record_event(event, stream);
      else
        kernel.backend->synchronize(stream);
      ended = kernel.seen(2);
      kernel.backend->destroy_event(event);
    });
    CHECK(ended == 1);
  }
}

TEST_CASE("Threads that share the emulator's default stream, and its workspace, get their own results",
          "[context][threads]") {
  const TemporaryDirectory cache;
  Context context({.device = Device::emulator, .tuning = Tuning::off, .cache_dir = cache.path().string()});
  const Problem problem{.m = 70, .n = 70, .k = 512, .d = {f32}};
  const KernelConfig configs[] = {with_schedule(sm80_config, Schedule::split_k, 4, 0),
                                  with_schedule(sm80_config, Schedule::stream_k, 1, 3),
                                  with_schedule(sm80_config, Schedule::data_parallel, 1, 0)};
  const auto call = [&](int thread, int config, std::vector<float>& d) {
    std::vector<std::uint16_t> a(70 * 512), b(512 * 70);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = i % 7 == std::size_t(thread) % 7 ? 0x3c00 : 0x4000;  // 1 or 2
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = i % 5 == std::size_t(thread) % 5 ? 0x3800 : 0xbc00;  // 0.5 or -1
    d.assign(70 * 70, -77);
    context.gemm(problem, {.a = a.data(), .b = b.data(), .d = d.data()}, nullptr, configs[config]);
  };
  std::vector<std::vector<float>> expected(8);
  for (int thread = 0; thread < 8; ++thread) call(thread, 2, expected[std::size_t(thread)]);
  for (int config = 0; config < 3; ++config) {
    std::vector<float> d;
    call(0, config, d);
    REQUIRE(d == expected[0]);  // sums of small halves are exact in any order
  }
  std::atomic<int> wrong = 0, thrown = 0;
  in_threads(8, [&](int thread) {
    std::vector<float> d;
    for (int i = 0; i < 15; ++i) {
      try {
        call(thread, (thread + i) % 3, d);
        wrong += d != expected[std::size_t(thread)];
      } catch (const Error&) {
        ++thrown;
      }
    }
  });
  CHECK(thrown == 0);
  CHECK(wrong == 0);
}
