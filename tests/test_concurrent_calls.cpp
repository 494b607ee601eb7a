// Threads that share a stream, by whatever name, or a caller's workspace on it: each call gives the bits that it gives
// alone. A call of several kernels must reach the stream as one unit for that.
#include <atomic>
#include <cstring>
#include <iostream>
#include <thread>

#include "catch.hpp"
#include "cuda_fixtures.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

/// Where the threads' calls meet.
enum class Sharing { nothing, stream, default_stream, thread_default_stream, workspace };

std::string name_of(Sharing sharing) {
  switch (sharing) {
    case Sharing::nothing:
      return "streams of their own";
    case Sharing::stream:
      return "one stream";
    case Sharing::default_stream:
      return "the default stream by both its names";
    case Sharing::thread_default_stream:
      return "the default stream of each thread";
    case Sharing::workspace:
      return "one stream and a caller's workspace";
  }
  return "";
}

/// A call of two kernels, and one of two kernels that share tiles, too.
struct PackedCall {
  Problem problem;
  KernelConfig config;
};

std::vector<PackedCall> packed_calls() {
  const auto problem = [](std::int64_t k) {
    return Problem{
        .m = 64, .n = 64, .k = k, .b = {.layout = Layout::column_major}};  // odd leading dimensions of A and B
  };
  return {{problem(63), parse_kernel_config("sm90 64x64x64 stages=4 warps=4 pack=ab")},
          {problem(511), parse_kernel_config("sm90 64x64x64 stages=4 warps=4 pack=ab schedule=split_k splits=4")},
          {problem(255), parse_kernel_config("sm90 64x64x64 stages=4 warps=4 pack=ab schedule=stream_k grid=3")}};
}

/// One thread's matrices for one of the calls, which are not those of any other thread. Each of a batch of calls has a
/// D of its own, so that all are compared.
class Results {
 public:
  static constexpr std::size_t batch = 100;

  Results(Backend& backend, Context& context, const PackedCall& call, std::uint64_t seed)
      : backend_(backend), call_(call), device_(backend, call.problem, seed), alone_(expected(context)) {
    d_ = static_cast<char*>(device_.allocate(alone_.size() * batch));
    poison();
  }

  void enqueue(Context& context, std::size_t number, Stream stream, void* workspace, std::size_t workspace_bytes) {
    Operands operands = device_.operands;
    operands.d = d_ + number * alone_.size();
    operands.workspace = workspace;
    operands.workspace_bytes = workspace_bytes;
    context.gemm(call_.problem, operands, stream, call_.config);
  }

  /// Of the first `count` of the batch, once the stream has passed them. The next batch begins with NaN.
  int wrong(std::size_t count) {
    std::string bits(alone_.size() * count, '\0');
    backend_.copy_to_host(bits.data(), d_, bits.size());
    int wrong = 0;
    for (std::size_t i = 0; i < count; ++i)
      wrong += std::memcmp(bits.data() + i * alone_.size(), alone_.data(), alone_.size()) != 0;
    poison();
    return wrong;
  }

 private:
  std::string expected(Context& context) {
    const OwnStream stream(backend_);
    context.gemm(call_.problem, device_.operands, stream, call_.config);
    backend_.synchronize(stream);
    if (const std::string why = device_.violation(MainLoop::sm90); !why.empty()) throw std::runtime_error(why);
    return device_.d();
  }
  void poison() {
    const std::string nan(alone_.size() * batch, '\xff');
    backend_.copy_to_device(d_, nan.data(), nan.size());
  }

  Backend& backend_;
  PackedCall call_;
  DeviceOperands device_;
  std::string alone_;
  char* d_ = nullptr;
};

struct Outcome {
  std::uint64_t calls = 0, wrong = 0;
  std::string error;
};

Outcome run(Backend& backend, Context& context, Sharing sharing, std::size_t threads, std::size_t calls_of_a_thread) {
  const std::vector<PackedCall> calls = packed_calls();
  const OwnStream shared(backend);
  std::size_t workspace_bytes = 0;
  for (const PackedCall& call : calls)
    workspace_bytes = std::max(workspace_bytes, context.workspace_size(call.problem, call.config));
  const std::unique_ptr<void, std::function<void(void*)>> workspace(
      sharing == Sharing::workspace ? backend.allocate(workspace_bytes) : nullptr, [&](void* memory) {
        if (memory) backend.release(memory);
      });

  std::vector<std::vector<std::unique_ptr<Results>>> results(threads);
  for (std::size_t thread = 0; thread < threads; ++thread)
    for (std::size_t i = 0; i < calls.size(); ++i)
      results[thread].push_back(std::make_unique<Results>(backend, context, calls[i], 1 + thread * calls.size() + i));

  Outcome outcome;
  std::atomic<std::uint64_t> wrong = 0, done = 0;
  std::mutex mutex;
  const auto work = [&](std::size_t thread) {
    const OwnStream own(backend);
    const Stream stream = sharing == Sharing::nothing                 ? own
                          : sharing == Sharing::default_stream        ? (thread % 2 ? CU_STREAM_LEGACY : nullptr)
                          : sharing == Sharing::thread_default_stream ? CU_STREAM_PER_THREAD
                                                                      : shared;
    for (std::size_t left = calls_of_a_thread; left > 0;) {
      const std::size_t count = std::min(left, Results::batch * calls.size());
      for (std::size_t i = 0; i < count; ++i)
        results[thread][i % calls.size()]->enqueue(context, i / calls.size(), stream, workspace.get(),
                                                   workspace ? workspace_bytes : 0);
      backend.synchronize(stream);
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const std::size_t its = (count + calls.size() - 1 - i) / calls.size();
        wrong += std::uint64_t(its > 0 ? results[thread][i]->wrong(its) : 0);
      }
      done += count;
      left -= count;
    }
  };
  std::vector<std::thread> workers;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      try {
        work(thread);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        outcome.error = error.what();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  outcome.calls = done;
  outcome.wrong = wrong;
  return outcome;
}

}  // namespace

TEST_CASE("On the emulator, threads that share a stream or a workspace get the bits that they get alone", "[context]") {
  const TemporaryDirectory cache;
  const auto backend = make_emulator_backend({});
  ContextOptions options = options_in(cache);
  options.device = Device::emulator;
  Context context(options);
  for (const Sharing sharing : {Sharing::nothing, Sharing::stream, Sharing::default_stream, Sharing::workspace}) {
    INFO(name_of(sharing));
    const Outcome outcome = run(*backend, context, sharing, 4, 60);
    CHECK(outcome.error == "");
    CHECK(outcome.calls == 4 * 60);
    CHECK(outcome.wrong == 0);
  }
}

// 100,000 packed calls of each of eight threads in all.
TEST_CASE("On the GPU, threads that share a stream or a workspace get the bits that they get alone",
          "[.][gpu][context][long]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  if (!backend->device().has_wgmma()) SKIP("packed operands need wgmma, which this device has not");
  Context context(options_in(cache));
  const std::vector<std::pair<Sharing, std::size_t>> runs{{Sharing::stream, 30000},
                                                          {Sharing::default_stream, 30000},
                                                          {Sharing::workspace, 30000},
                                                          {Sharing::thread_default_stream, 5000},
                                                          {Sharing::nothing, 5000}};
  for (const auto& [sharing, calls] : runs) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = run(*backend, context, sharing, 8, calls);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::cout << "8 threads, " << name_of(sharing) << ": " << outcome.wrong << " of " << outcome.calls
              << " calls wrong, " << seconds << " s" << std::endl;
    INFO(name_of(sharing));
    CHECK(outcome.error == "");
    CHECK(outcome.calls == 8 * calls);
    CHECK(outcome.wrong == 0);
  }
}
