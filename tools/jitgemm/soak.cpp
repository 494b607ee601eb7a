#include <cuda.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "backend/backend.hpp"
#include "backend/cuda/driver_api.hpp"
#include "check.hpp"
#include "commands.hpp"
#include "context_options.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "launch_graph.hpp"
#include "measure.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "soak_patterns.hpp"
#include "soak_sharing.hpp"
#include "text.hpp"

namespace jitgemm::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  DeviceOptions device;
  double seconds = 0, minutes = 0;
  int threads = 8, check_every = 1000, patterns = 200;
  std::int64_t max_size = 0;
  std::vector<std::string> sharing;
  std::optional<std::uint64_t> seed;
  bool json = false;
};

constexpr double default_seconds = 60;
constexpr std::size_t offset_bytes = 256, offsets = 1 << 12;  // where in the inputs an operand may begin
constexpr int most_failures = 100, failures_shown = 10;
constexpr std::uint64_t most_repeats = 16;                            // of a call
constexpr std::array<float, 5> scales{1, 0.3f, -1.7f, 0.011f, 5.3f};  // of 8-bit operands

/// Of the current context's device, by all processes. The emulator's memory is this process's heap.
std::size_t memory_in_use(bool emulated) {
  if (emulated) {
    const auto heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
  }
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  using GetInfo = CUresult (*)(std::size_t*, std::size_t*);
  static const auto get_info = library ? reinterpret_cast<GetInfo>(dlsym(library, "cuMemGetInfo_v2")) : nullptr;
  if (!get_info) throw Error(ErrorCode::no_device, "the CUDA driver has no cuMemGetInfo: update it");
  std::size_t free = 0, total = 0;
  cuda::check(cuda::driver(), get_info(&free, &total), ErrorCode::launch_failed, "cuMemGetInfo", "check nvidia-smi");
  return total - free;
}

std::size_t resident_bytes() {
  std::size_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * std::size_t(sysconf(_SC_PAGESIZE));
}

struct Memory {
  std::size_t device = 0, host = 0;
  nlohmann::ordered_json to_json() const { return {{"device_bytes", device}, {"host_bytes", host}}; }
};

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

ContextOptions context_options(const Options& options) {
  ContextOptions context = options.device.context_options();
  if (context.device == Device::compile_only)
    throw Error(ErrorCode::invalid_option, "nothing runs on compile_only: use --device cuda or emulator");
  if (!context.tuning) context.tuning = Tuning::off;  // patterns without a configuration would measure for long
  if (context.device == Device::cuda) make_cuda_current();
  return context;
}

class Soak {
 public:
  explicit Soak(const Options& options)
      : options_(options),
        seconds_(options.seconds + 60 * options.minutes > 0 ? options.seconds + 60 * options.minutes : default_seconds),
        seed_(options.seed ? *options.seed : std::random_device()()),
        context_options_(context_options(options)),
        context_(context_options_),
        backend_(make_backend(context_options_)),
        emulated_(backend_->device().emulated),
        patterns_(options.patterns,
                  options.max_size ? options.max_size
                  : emulated_      ? 64
                                   : 2048,
                  rated_device(context_options_, backend_->device()), seed_),
        nan_(patterns_.most_bytes(), std::byte{0xff}),
        sharings_(sharings(options.sharing, emulated_)),
        shared_stream_(*backend_),
        workspace_stream_(*backend_),
        scales_(*backend_, sizeof scales),
        warm_(options.threads + 1) {
    options.device.announce_emulator(context_options_);
    for (const DataType type : patterns_.types()) {
      DeviceMemory& memory = inputs_.emplace(type, DeviceMemory(*backend_, input_bytes())).first->second;
      backend_->fill_random(memory.data(), std::int64_t(memory.bytes() / size_of(type)), type, seed_ + unsigned(type));
    }
    backend_->copy_to_device(scales_.data(), scales.data(), sizeof scales);
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
    const Memory before = memory();
    const auto begin = Clock::now();
    warm_.arrive_and_wait();  // off they go
    while (!stop_ && seconds_since(begin) < seconds_ && failures_ < most_failures) {
      const double done = seconds_since(begin);
      progress.update(int(done * 10), int(seconds_ * 10),
                      fmt::format("{} calls, {} failed", sum(&Tally::calls), failures_));
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.2, seconds_ - done)));
    }
    stop_ = true;
    for (std::thread& thread : threads) thread.join();
    const double seconds = seconds_since(begin);
    progress.hide();
    report(seconds, before, memory());
  }

 private:
  /// Of the calls that share one thing.
  struct Tally {
    std::atomic<std::uint64_t> calls = 0, checked = 0, failures = 0;
  };

  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  std::size_t input_bytes() const { return patterns_.most_input_bytes() + offset_bytes * offsets; }
  Memory memory() const { return {memory_in_use(emulated_), resident_bytes()}; }

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
  DeviceMemory d_memory() const { return {*backend_, patterns_.most_bytes()}; }

  void work(int number) {
    const OwnedStream own(*backend_);
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
      if (place.sharing != Sharing::capture) attempt({}, place.sharing, [&] { backend_->synchronize(place.stream); });
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
    attempt({}, Sharing::nothing, [&] { backend_->synchronize(stream); });
  }

  /// What threads share beside streams, once their kernels are there.
  void prepare_sharing() {
    for (const Sharing sharing : sharings_) {
      if (sharing == Sharing::capture) capture_.emplace(*backend_, patterns_.most_bytes());
      if (sharing != Sharing::workspace) continue;
      std::size_t bytes = 256;
      for (const SoakPattern& pattern : patterns_.all()) {
        for (const Problem& problem : patterns_.largest_problems(pattern))
          bytes = std::max(bytes, workspace_size(pattern, problem));
      }
      workspace_ = DeviceMemory(*backend_, bytes);
    }
  }

  std::size_t workspace_size(const SoakPattern& pattern, const Problem& problem) {
    return pattern.config ? context_.workspace_size(problem, *pattern.config) : context_.workspace_size(problem);
  }

  void make(SoakCall& call, const Place& place, std::mt19937_64& random) {
    if (call.checked) {
      backend_->synchronize(place.stream);
      poison(call.problem, place.d.data());
    }
    if (place.sharing == Sharing::workspace && workspace_size(*call.pattern, call.problem) <= workspace_.bytes()) {
      call.operands.workspace = workspace_.data();
      call.operands.workspace_bytes = workspace_.bytes();
    }
    launch(call, place.d.data(), place.stream, random);
    count(call, place.sharing);
    // Again, now that all is ready: threads seldom meet on a stream between two launches unless they do little else. On
    // the emulator they do nothing else.
    for (auto more = emulated_ ? 0 : random() % most_repeats; more > 0; --more) {
      gemm(call, place.stream);
      count(call, place.sharing);
    }
    if (!call.checked) return;
    backend_->synchronize(place.stream);
    check(call, place.sharing);
  }

  void capture(const SoakCall& drawn, std::mt19937_64& random) {
    const auto enqueue = [&](Stream stream, void* d) {
      SoakCall call = drawn;
      launch(call, d, stream, random);
      count(call, Sharing::capture);
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
    operands.scale_a = scale(is_fp8(problem.a.type));
    operands.scale_b = scale(is_fp8(problem.b.type));
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
    backend_->copy_to_device(d, nan_.data(), std::size_t(matrix_d(normalise(problem)).batch_bytes()));
  }

  void count(const SoakCall& call, Sharing sharing) {
    ++tallies_[std::size_t(sharing)].calls;
    if (call.pattern->packs) ++packed_;
  }

  void check(const SoakCall& call, Sharing sharing) {
    const Check check = check_against_reference(*backend_, normalise(call.problem), call.operands);
    ++tallies_[std::size_t(sharing)].checked;
    if (check.passed()) return;
    fail(call, sharing,
         fmt::format("D({}, {}) = {}, should be {}, within {:.3g}", check.row, check.column, check.got, check.expected,
                     check.allowed));
  }

  template <typename Body>
  void attempt(const SoakCall& call, Sharing sharing, const Body& body) {
    try {
      body();
    } catch (const std::exception& error) {
      fail(call, sharing, error.what());
    }
  }

  void fail(const SoakCall& call, Sharing sharing, const std::string& what) {
    ++failures_;
    ++tallies_[std::size_t(sharing)].failures;
    const std::lock_guard lock(mutex_);
    if (failure_texts_.size() >= failures_shown) return;
    failure_texts_.push_back(fmt::format(
        "{}{} (threads share: {}): {}", ProblemOptions::command_line(call.problem),
        call.pattern && call.pattern->config ? " --config \"" + to_string(*call.pattern->config) + "\"" : "",
        sharing_names[std::size_t(sharing)], what));
  }

  std::uint64_t sum(std::atomic<std::uint64_t> Tally::* member) const {
    std::uint64_t sum = 0;
    for (const Tally& tally : tallies_) sum += tally.*member;
    return sum;
  }

  nlohmann::ordered_json sharing_json() const {
    nlohmann::ordered_json json;
    for (const Sharing sharing : sharings_) {
      const Tally& tally = tallies_[std::size_t(sharing)];
      json[std::string(sharing_names[std::size_t(sharing)])] = {
          {"calls", tally.calls.load()}, {"checked", tally.checked.load()}, {"failures", tally.failures.load()}};
    }
    return json;
  }

  void report(double seconds, const Memory& before, const Memory& after) const {
    const Counters counters = context_.counters();
    const std::uint64_t calls = sum(&Tally::calls), checked = sum(&Tally::checked);
    for (const std::string& text : failure_texts_) fmt::print(stderr, "jitgemm: failed: {}\n", text);
    if (options_.json) {
      print_json({{"device", to_json(context_.device())},
                  {"seed", seed_},
                  {"threads", options_.threads},
                  {"seconds", seconds},
                  {"patterns", patterns_.all().size()},
                  {"calls", calls},
                  {"calls_per_second", double(calls) / seconds},
                  {"packed_calls", packed_.load()},
                  {"checked", checked},
                  {"failures", failures_.load()},
                  {"sharing", sharing_json()},
                  {"first_failures", failure_texts_},
                  {"memory_at_start", before.to_json()},
                  {"memory_at_end", after.to_json()},
                  {"kernels", {{"compiled", counters.compiles}, {"from_disk", counters.disk_hits}}}});
    } else {
      fmt::print("{:<9} {} in {:.1f} s, {:.0f} a second, at least {} of packed operands; {} checked, {} failed\n",
                 "calls", calls, seconds, double(calls) / seconds, packed_, checked, failures_);
      for (const Sharing sharing : sharings_) {
        const Tally& tally = tallies_[std::size_t(sharing)];
        fmt::print("{:<9} {:<14} {:>9} calls, {:>7} checked, {} failed\n", "sharing",
                   sharing_names[std::size_t(sharing)], tally.calls, tally.checked, tally.failures);
      }
      fmt::print("{:<9} {} {} at the start (warm), {} at the end; resident {} and {}\n", "memory",
                 emulated_ ? "heap" : "device", bytes_text(double(before.device)), bytes_text(double(after.device)),
                 bytes_text(double(before.host)), bytes_text(double(after.host)));
      fmt::print("{:<9} {} compiled, {} from the disk cache\n", "kernels", counters.compiles, counters.disk_hits);
    }
    if (failures_ > 0) {
      throw Error(ErrorCode::internal, fmt::format("{} failed: run one alone with `jitgemm run` and the options above",
                                                   counted(std::uint64_t(failures_), "call")));
    }
  }

  const Options& options_;
  const double seconds_;
  const std::uint64_t seed_;
  const ContextOptions context_options_;
  Context context_;
  std::unique_ptr<Backend> backend_;
  const bool emulated_;
  const SoakPatterns patterns_;
  const std::vector<std::byte> nan_;
  std::map<DataType, DeviceMemory> inputs_;
  const std::vector<Sharing> sharings_;
  const OwnedStream shared_stream_, workspace_stream_;
  DeviceMemory scales_, workspace_;
  std::optional<SharedCapture> capture_;

  std::barrier<> warm_;  // all threads and the main one, twice
  std::atomic<int> warmed_ = 0, failures_ = 0;
  std::atomic<std::uint64_t> packed_ = 0;
  std::array<Tally, sharing_count> tallies_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::vector<std::string> failure_texts_;
};

}  // namespace

void add_soak(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("soak", "Call for long from many threads, with everything drawn at random");
  command->add_option("--minutes", options->minutes, "To run, warm-up aside")->check(number_from_0());
  command->add_option("--seconds", options->seconds, "The same; both add up [60]")->check(number_from_0());
  command->add_option("--threads", options->threads, "Of one Context")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--check-every", options->check_every, "Draws of a thread from one check to the next")
      ->check(positive_number())
      ->capture_default_str();
  command
      ->add_option("--patterns", options->patterns, "Types, layouts, epilogues and configurations that are drawn from")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--max-size", options->max_size, "Of m, n and k, rounded up to 16 [2048; on the emulator 64]")
      ->check(CLI::Range(1, 1 << 15));
  command
      ->add_option("--sharing", options->sharing,
                   "What threads share: any of nothing, stream, default-stream, thread-default (the per-thread default "
                   "stream), workspace (a caller's, on one stream) and capture (of one graph) [all; a call draws one]")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(sharing_names.begin(), sharing_names.end())));
  command->add_option("--seed", options->seed, "Of all that is drawn [a new one, which is printed]")
      ->check(number_of_64_bits());
  options->device.add_to(*command);
  options->device.add_tuning_to(*command);
  command->add_flag("--json", options->json, "For machines");
  command->footer(R"(
Results are compared with a float64 reference. A pattern has its own configuration or, one in four, the library's
choice (--tuning off unless told otherwise) for a few sizes; all other sizes are drawn. On a GPU, what is drawn is called
once or several times in a row.
Examples:
  jitgemm soak --minutes 10
  jitgemm soak --sharing stream,workspace --check-every 100
  jitgemm soak --device emulator --seconds 20 --threads 2 --patterns 10 --check-every 10
)");
  command->callback([options] {
    options->max_size = (options->max_size + 15) / 16 * 16;
    Soak(*options).all();
  });
}

}  // namespace jitgemm::cli
