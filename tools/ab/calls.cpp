#include "calls.hpp"

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "times.hpp"

namespace ab {
namespace {

struct HostCase {
  const char* name;
  long long m, n, k;
  char layout_b;
  const char* config;  ///< empty: the library's choice
};

/// A thread's stream and matrices.
struct Caller {
  CUstream stream;
  AbOperands operands;
};

class HostCalls {
 public:
  HostCalls(const Options& options, Sides& sides)
      : sides_(sides), calls_(options.emulator ? 1 : 100), rounds_(options.host_rounds) {}

  void compare(const HostCase& one, int threads) {
    const AbProblem problem{one.m, one.n, one.k, "f16", "f16", "row_major", layout_name(one.layout_b), "fast"};
    void* const old_call = sides_.before.prepare(problem, one.config);
    void* const new_call = sides_.after.prepare(problem, one.config);
    const std::vector<Caller> callers = make_callers(one, threads);
    std::vector<double> old_ns, new_ns;
    const int rounds = threads == 1 ? rounds_ : std::max(1, rounds_ / 20);
    for (int round = -std::max(1, rounds / 10); round < rounds; ++round) {
      double old_time = 0, new_time = 0;
      if (random_() % 2) {
        old_time = ns_a_call(sides_.before, old_call, callers);
        new_time = ns_a_call(sides_.after, new_call, callers);
      } else {
        new_time = ns_a_call(sides_.after, new_call, callers);
        old_time = ns_a_call(sides_.before, old_call, callers);
      }
      if (round < 0) continue;
      old_ns.push_back(old_time);
      new_ns.push_back(new_time);
    }
    std::printf("%-24s %8.0f %8.0f %+8.0f\n", one.name, median(old_ns), median(new_ns),
                median(new_ns) - median(old_ns));
    std::fflush(stdout);
  }

 private:
  std::vector<Caller> make_callers(const HostCase& one, int threads) {
    std::vector<Caller> callers;
    Device& device = *sides_.device;
    const std::size_t bytes = std::size_t(std::max({one.m * one.k, one.k * one.n, one.m * one.n})) * 2;
    const std::vector<std::byte> zeros(bytes);
    for (int i = 0; i < threads; ++i) {
      callers.push_back({device.create_stream(),
                         {device.allocate(bytes), device.allocate(bytes), device.allocate(bytes), nullptr, 0}});
      device.copy_to_device(const_cast<void*>(callers.back().operands.a), zeros.data(), bytes);
      device.copy_to_device(const_cast<void*>(callers.back().operands.b), zeros.data(), bytes);
    }
    return callers;
  }

  void make_calls(const Side& side, void* call, const Caller& caller) const {
    for (int i = 0; i < calls_; ++i) side.gemm(call, caller.operands, caller.stream);
  }

  double ns_a_call(const Side& side, void* call, const std::vector<Caller>& callers) {
    if (callers.size() > 1) return ns_in_threads(side, call, callers);
    const auto begin = Clock::now();  // no start of a thread in the time
    make_calls(side, call, callers[0]);
    const double seconds = seconds_since(begin);
    sides_.device->synchronize(callers[0].stream);
    return 1e9 * seconds / calls_;
  }

  double ns_in_threads(const Side& side, void* call, const std::vector<Caller>& callers) {
    std::barrier start(std::ptrdiff_t(callers.size()) + 1);
    std::vector<std::thread> workers;
    std::mutex mutex;
    std::string failure;
    for (const Caller& caller : callers) {
      workers.emplace_back([&] {
        try {
          sides_.device->make_current();
          start.arrive_and_wait();
          for (int repeat = 0; repeat < 10; ++repeat) make_calls(side, call, caller);
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex);
          failure = error.what();
        }
      });
    }
    start.arrive_and_wait();
    const auto begin = Clock::now();
    for (std::thread& worker : workers) worker.join();
    const double seconds = seconds_since(begin);
    for (const Caller& caller : callers) sides_.device->synchronize(caller.stream);
    if (!failure.empty()) throw std::runtime_error(failure);
    return 1e9 * seconds / (10.0 * calls_ * double(callers.size()));
  }

  Sides& sides_;
  const int calls_, rounds_;
  std::mt19937 random_{1};
};

}  // namespace

bool compare_calls(const Options& options, Sides& sides) {
  HostCalls host(options, sides);
  bool all = true;
  static constexpr const char* plain = "sm80 64x64x32 stages=3 warps=4";
  const HostCase cases[] = {
      {"one kernel, pinned", 128, 128, 64, 'n', plain},
      {"one kernel, chosen", 128, 128, 64, 'n', ""},
      {"TMA descriptors, pinned", 128, 128, 64, 'n', "sm90 64x64x64 stages=4 warps=4"},
      {"split tiles, pinned", 64, 64, 256, 'n', "sm80 64x64x32 stages=3 warps=4 schedule=split_k splits=2"},
      {"packed operands, pinned", 64, 64, 63, 't', "sm90 64x64x64 stages=4 warps=4 pack=ab"},
      {"packed operands, chosen", 512, 512, 511, 't', ""},
  };
  std::printf("\nhost ns a call               old      new     more\n");
  for (const HostCase& one : cases) {
    try {
      host.compare(one, 1);
    } catch (const std::exception& error) {
      all = false;
      std::printf("%-24s failed: %s\n", one.name, error.what());
    }
  }
  std::printf("8 threads, a stream each: ns of wall time a call, of all\n");
  for (const HostCase& one : {cases[0], cases[3], cases[4]}) host.compare(one, 8);
  return all;
}

}  // namespace ab
