#include "soak/soak.hpp"

#include <cuda.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "backend/backend.hpp"
#include "common/progress.hpp"
#include "common/text.hpp"
#include "context_internals.hpp"
#include "context_options.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "measure/check.hpp"
#include "measure/launch_graph.hpp"
#include "measure/memory.hpp"
#include "soak/memory.hpp"
#include "soak/patterns.hpp"
#include "soak/results.hpp"
#include "soak/sharing.hpp"

namespace jitgemm::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double default_seconds = 60;
constexpr std::size_t offset_bytes = 256, offsets = 1 << 12;  // where in the inputs an operand may begin
constexpr int most_failures = 100;
constexpr std::uint64_t most_repeats = 16;                            // of a call
constexpr std::array<float, 5> scales{1, 0.3f, -1.7f, 0.011f, 5.3f};  // of 8-bit operands

class OwnedStream {
 public:
  explicit OwnedStream(Backend& backend) : backend_(backend), stream_(backend.create_stream()) {}
  ~OwnedStream() { backend_.destroy_stream(stream_); }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  Stream get() const { return stream_; }

 private:
  Backend& backend_;
  Stream stream_;
};

/// The kinds that were asked for, or all: the emulator has neither the per-thread default stream nor captures.
std::vector<Sharing> sharings(const std::vector<std::string>& names, bool emulated) {
  std::vector<Sharing> sharings;
  for (std::size_t i = 0; i < sharing_count; ++i) {
    const auto sharing = Sharing(i);
    const bool needs_gpu = sharing == Sharing::thread_default || sharing == Sharing::capture;
    const bool named = std::ranges::count(names, sharing_names[i]) > 0;
    if (named && needs_gpu && emulated)
      throw Error(ErrorCode::invalid_option,
                  fmt::format("--sharing {} needs a GPU: leave it out on the emulator", sharing_names[i]));
    if (named || (names.empty() && !(needs_gpu && emulated))) sharings.push_back(sharing);
  }
  return sharings;
}

ContextOptions context_options(const SoakOptions& options) {
  ContextOptions context = options.device.context_options();
  if (context.device == Device::compile_only)
    throw Error(ErrorCode::invalid_option, "nothing runs on compile_only: use --device cuda or emulator");
  if (!context.tuning) context.tuning = Tuning::off;  // patterns without a configuration would measure for long
  return context;
}

class Soak {
 public:
  explicit Soak(const SoakOptions& options)
      : options_(options),
        seconds_(options.seconds + 60 * options.minutes > 0 ? options.seconds + 60 * options.minutes : default_seconds),
        seed_(options.seed ? *options.seed : std::random_device()()),
        context_options_(context_options(options)),
        context_(open_context(context_options_)),
        backend_(ContextInternals::backend(context_)),
        emulated_(backend_.device().emulated),
        patterns_(options.patterns,
                  options.max_size ? options.max_size
                  : emulated_      ? 64
                                   : 2048,
                  rated_device(context_options_, backend_.device()), seed_),
        nan_(patterns_.most_bytes(), std::byte{0xff}),
        sharings_(sharings(options.sharing, emulated_)),
        shared_stream_(backend_),
        workspace_stream_(backend_),
        scales_(backend_, sizeof scales),
        warm_(options.threads + 1) {
    options.device.announce_emulator(context_options_);
    for (const DataType type : patterns_.types()) {
      DeviceMemory& memory = inputs_.emplace(type, DeviceMemory(backend_, input_bytes())).first->second;
      backend_.fill_random(memory.data(), std::int64_t(memory.bytes() / size_of(type)), type, seed_ + unsigned(type));
    }
    backend_.copy_to_device(scales_.data(), scales.data(), sizeof scales);
  }

  void all() {
    announce();
    std::vector<std::thread> threads;
    for (int i = 0; i < options_.threads; ++i) threads.emplace_back([this, i] { work(i); });
    Progress progress("soak");
    wait_for_warm_up(progress);
    stop_ = true;  // unless all is ready
    attempt({}, Sharing::nothing, [&] {
      prepare_sharing();
      stop_ = false;
    });
    const MemoryInUse before = memory_in_use(emulated_);
    const auto begin = Clock::now();
    warm_.arrive_and_wait();  // off they go
    while (!stop_ && seconds_since(begin) < seconds_ && results_.failures() < most_failures) {
      const double done = seconds_since(begin);
      progress.update(int(done * 10), int(seconds_ * 10),
                      fmt::format("{} calls, {} failed", results_.calls(), results_.failures()));
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.2, seconds_ - done)));
    }
    stop_ = true;
    for (std::thread& thread : threads) thread.join();
    const double seconds = seconds_since(begin);
    progress.hide();
    report(results_,
           {.device = context_.device(),
            .seed = seed_,
            .threads = options_.threads,
            .seconds = seconds,
            .patterns = patterns_.all().size(),
            .sharings = sharings_,
            .memory_at_start = before,
            .memory_at_end = memory_in_use(emulated_),
            .counters = context_.counters()},
           options_.json);
  }

 private:
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  std::size_t input_bytes() const { return patterns_.most_input_bytes() + offset_bytes * offsets; }

  void announce() const {
    if (options_.json) return;
    fmt::print("{:<9} {}{}\n", "device", context_.device().name, emulated_ ? ": a CPU" : "");
    fmt::print("{:<9} {} for {:.0f} s, {} patterns, one in {} draws of a thread is checked; --seed {}\n", "soak",
               counted(std::uint64_t(options_.threads), "thread"), seconds_, patterns_.all().size(),
               options_.check_every, seed_);
    std::fflush(stdout);
  }

  void wait_for_warm_up(Progress& progress) {
    const int total = options_.threads * int(patterns_.all().size());
    while (warmed_ < total) {
      progress.update(warmed_, total, "warming up");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    warm_.arrive_and_wait();
    progress.hide();
  }

  /// Where a thread's calls go, with a D for each: calls on different streams do not wait for each other.
  struct Place {
    Sharing sharing;
    Stream stream;
    DeviceMemory d;
  };

  std::vector<Place> places(int number, Stream own) const {
    std::vector<Place> places;
    for (const Sharing sharing : sharings_) {
      Stream stream = nullptr;
      switch (sharing) {
        case Sharing::nothing:
          stream = own;
          break;
        case Sharing::stream:
          stream = shared_stream_.get();
          break;
        case Sharing::default_stream:
          stream = number % 2 && !emulated_ ? CU_STREAM_LEGACY : nullptr;
          break;
        case Sharing::thread_default:
          stream = CU_STREAM_PER_THREAD;
          break;
        case Sharing::workspace:
          stream = workspace_stream_.get();
          break;
        case Sharing::capture:
          break;  // which has both
      }
      places.push_back({sharing, stream, sharing == Sharing::capture ? DeviceMemory() : d_memory()});
    }
    return places;
  }
  DeviceMemory d_memory() const { return {backend_, patterns_.most_bytes()}; }

  void work(int number) {
    const OwnedStream own(backend_);
    std::mt19937_64 random(seed_ + 1 + std::uint64_t(number));
    warm_up(number, own.get(), random);
    std::vector<Place> places;
    attempt({}, Sharing::nothing, [&] { places = this->places(number, own.get()); });
    warm_.arrive_and_wait();
    warm_.arrive_and_wait();
    for (std::uint64_t number_of_call = 0; !stop_ && !places.empty(); ++number_of_call) {
      SoakCall call;
      call.pattern = &patterns_.all()[random() % patterns_.all().size()];
      call.problem = patterns_.draw(*call.pattern, random);
      call.checked = number_of_call % std::uint64_t(options_.check_every) == 0;
      const Place& place = places[random() % places.size()];
      attempt(call, place.sharing, [&] {
        if (place.sharing == Sharing::capture)
          capture(call, random);
        else
          make(call, place, random);
      });
    }
    for (const Place& place : places) {
      if (place.sharing != Sharing::capture) attempt({}, place.sharing, [&] { backend_.synchronize(place.stream); });
    }
  }

  /// Each thread begins elsewhere, so that different kernels are compiled at once.
  void warm_up(int number, Stream stream, std::mt19937_64& random) {
    DeviceMemory d;
    attempt({}, Sharing::nothing, [&] { d = d_memory(); });
    const std::size_t count = patterns_.all().size();
    for (std::size_t i = 0; i < count; ++i, ++warmed_) {
      const SoakPattern& pattern =
          patterns_.all()[(i + std::size_t(number) * count / std::size_t(options_.threads)) % count];
      for (const Problem& problem : patterns_.largest_problems(pattern)) {
        SoakCall call{.pattern = &pattern, .problem = problem, .operands = {}};
        attempt(call, Sharing::nothing, [&] { launch(call, d.data(), stream, random); });
      }
    }
    attempt({}, Sharing::nothing, [&] { backend_.synchronize(stream); });
  }

  /// What threads share beside streams, once their kernels are there.
  void prepare_sharing() {
    for (const Sharing sharing : sharings_) {
      if (sharing == Sharing::capture) capture_.emplace(backend_, patterns_.most_bytes());
      if (sharing != Sharing::workspace) continue;
      std::size_t bytes = 256;
      for (const SoakPattern& pattern : patterns_.all()) {
        for (const Problem& problem : patterns_.largest_problems(pattern))
          bytes = std::max(bytes, workspace_size(pattern, problem));
      }
      workspace_ = DeviceMemory(backend_, bytes);
    }
  }

  std::size_t workspace_size(const SoakPattern& pattern, const Problem& problem) {
    return pattern.config ? context_.workspace_size(problem, *pattern.config) : context_.workspace_size(problem);
  }

  void make(SoakCall& call, const Place& place, std::mt19937_64& random) {
    if (call.checked) {
      backend_.synchronize(place.stream);
      poison(call.problem, place.d.data());
    }
    if (place.sharing == Sharing::workspace && workspace_size(*call.pattern, call.problem) <= workspace_.bytes()) {
      call.operands.workspace = workspace_.data();
      call.operands.workspace_bytes = workspace_.bytes();
    }
    launch(call, place.d.data(), place.stream, random);
    results_.count(call, place.sharing);
    // Again, now that all is ready: threads seldom meet on a stream between two launches unless they do little else. On
    // the emulator they do nothing else.
    for (auto more = emulated_ ? 0 : random() % most_repeats; more > 0; --more) {
      gemm(call, place.stream);
      results_.count(call, place.sharing);
    }
    if (!call.checked) return;
    backend_.synchronize(place.stream);
    check(call, place.sharing);
  }

  void capture(const SoakCall& drawn, std::mt19937_64& random) {
    const auto enqueue = [&](Stream stream, void* d) {
      SoakCall call = drawn;
      launch(call, d, stream, random);
      results_.count(call, Sharing::capture);
      return call;
    };
    capture_->add(
        enqueue,
        [this](const SoakCall& call) {
          if (call.checked) poison(call.problem, call.operands.d);
        },
        [this](const SoakCall& call) {
          if (call.checked) attempt(call, Sharing::capture, [&] { check(call, Sharing::capture); });
        });
  }

  void launch(SoakCall& call, void* d, Stream stream, std::mt19937_64& random) {
    const Problem& problem = call.problem;
    const auto input = [&](DataType type) { return inputs_.at(type).data() + offset_bytes * (random() % offsets); };
    const auto scale = [&](bool applies) {
      return applies && random() % 2 ? reinterpret_cast<const float*>(scales_.data()) + random() % scales.size()
                                     : nullptr;
    };
    Operands& operands = call.operands;
    operands.a = input(problem.a.type);
    operands.b = input(problem.b.type);
    operands.c = input(type_of_c(problem));
    operands.bias = input(type_of_c(problem));
    operands.scale_a = scale(takes_scales(problem));
    operands.scale_b = scale(takes_scales(problem));
    operands.scale_d = scale(is_fp8(problem.d.type));
    operands.d = d;
    gemm(call, stream);
  }

  void gemm(const SoakCall& call, Stream stream) {
    if (call.pattern->config) {
      context_.gemm(call.problem, call.operands, stream, *call.pattern->config);
    } else {
      context_.gemm(call.problem, call.operands, stream);
    }
  }

  void poison(const Problem& problem, void* d) {
    backend_.copy_to_device(d, nan_.data(), std::size_t(matrix_d(normalise(problem)).batch_bytes()));
  }

  void check(const SoakCall& call, Sharing sharing) {
    const Check check = check_against_reference(backend_, normalise(call.problem), call.operands);
    results_.checked(sharing);
    if (check.passed()) return;
    results_.fail(call, sharing,
                  fmt::format("D({}, {}) = {}, should be {}, within {:.3g}", check.worst.row, check.worst.column,
                              check.got, check.expected, check.allowed));
  }

  template <typename Body>
  void attempt(const SoakCall& call, Sharing sharing, const Body& body) {
    try {
      body();
    } catch (const std::exception& error) {
      results_.fail(call, sharing, error.what());
    }
  }

  const SoakOptions& options_;
  const double seconds_;
  const std::uint64_t seed_;
  const ContextOptions context_options_;
  Context context_;
  Backend& backend_;
  const bool emulated_;
  const SoakPatterns patterns_;
  const std::vector<std::byte> nan_;
  std::map<DataType, DeviceMemory> inputs_;
  const std::vector<Sharing> sharings_;
  const OwnedStream shared_stream_, workspace_stream_;
  DeviceMemory scales_, workspace_;
  std::optional<SharedCapture> capture_;

  std::barrier<> warm_;  // all threads and the main one, twice
  std::atomic<int> warmed_ = 0;
  std::atomic<bool> stop_ = false;
  SoakResults results_;
};

}  // namespace

void soak(const SoakOptions& options) { Soak(options).all(); }

}  // namespace jitgemm::cli
