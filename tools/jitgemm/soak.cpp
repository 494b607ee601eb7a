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
#include "text.hpp"

namespace jitgemm::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  DeviceOptions device;
  double seconds = 0, minutes = 0;
  int threads = 8, check_every = 1000, patterns = 200;
  std::int64_t max_size = 0;
  std::optional<std::uint64_t> seed;
  bool json = false;
};

constexpr double default_seconds = 60;
constexpr std::size_t offset_bytes = 256, offsets = 1 << 12;  // where in the inputs an operand may begin
constexpr int most_failures = 100, failures_shown = 10;

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
                  backend_->device(), seed_),
        nan_(patterns_.most_bytes(), std::byte{0xff}),
        warm_(options.threads + 1) {
    options.device.announce_emulator(context_options_);
    for (const DataType type : patterns_.types()) {
      DeviceMemory& memory = inputs_.emplace(type, DeviceMemory(*backend_, input_bytes())).first->second;
      backend_->fill_random(memory.data(), std::int64_t(memory.bytes() / size_of(type)), type, seed_ + unsigned(type));
    }
  }

  void all() {
    announce();
    std::vector<std::thread> threads;
    for (int i = 0; i < options_.threads; ++i) threads.emplace_back([this, i] { work(i); });
    Progress progress("soak");
    wait_for_warm_up(progress);
    const Memory before = memory();
    const auto begin = Clock::now();
    warm_.arrive_and_wait();  // off they go
    while (seconds_since(begin) < seconds_ && failures_ < most_failures) {
      const double done = seconds_since(begin);
      progress.update(int(done * 10), int(seconds_ * 10), fmt::format("{} calls, {} failed", calls_, failures_));
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.2, seconds_ - done)));
    }
    stop_ = true;
    for (std::thread& thread : threads) thread.join();
    const double seconds = seconds_since(begin);
    progress.hide();
    report(seconds, before, memory());
  }

 private:
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  std::size_t input_bytes() const { return patterns_.most_bytes() + offset_bytes * offsets; }
  Memory memory() const { return {memory_in_use(emulated_), resident_bytes()}; }

  void announce() const {
    if (options_.json) return;
    fmt::print("{:<9} {}{}\n", "device", context_.device().name, emulated_ ? ": a CPU" : "");
    fmt::print("{:<9} {} for {:.0f} s, {} patterns, every {} call of a thread is checked; --seed {}\n", "soak",
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

  void work(int number) {
    const OwnedStream stream(*backend_);
    const DeviceMemory d(*backend_, patterns_.most_bytes());
    std::mt19937_64 random(seed_ + 1 + std::uint64_t(number));
    // Each thread begins elsewhere, so that different kernels are compiled at once.
    const std::size_t count = patterns_.all().size();
    for (std::size_t i = 0; i < count; ++i, ++warmed_) {
      const SoakPattern& pattern =
          patterns_.all()[(i + std::size_t(number) * count / std::size_t(options_.threads)) % count];
      for (const Problem& problem : patterns_.largest_problems(pattern)) {
        attempt(pattern, problem, [&] { launch(pattern, problem, d, stream.get(), random); });
      }
    }
    attempt({}, {}, [&] { backend_->synchronize(stream.get()); });
    warm_.arrive_and_wait();
    warm_.arrive_and_wait();
    for (std::uint64_t call = 0; !stop_; ++call) {
      const SoakPattern& pattern = patterns_.all()[random() % count];
      const Problem problem = patterns_.draw(pattern, random);
      const bool checked = call % std::uint64_t(options_.check_every) == 0;
      attempt(pattern, problem, [&] {
        if (checked) poison(problem, d, stream.get());
        const Operands operands = launch(pattern, problem, d, stream.get(), random);
        ++calls_;
        if (checked) check(pattern, problem, operands, stream.get());
      });
    }
    attempt({}, {}, [&] { backend_->synchronize(stream.get()); });
  }

  Operands launch(const SoakPattern& pattern, const Problem& problem, const DeviceMemory& d, Stream stream,
                  std::mt19937_64& random) {
    const auto input = [&](DataType type) { return inputs_.at(type).data() + offset_bytes * (random() % offsets); };
    Operands operands;
    operands.a = input(problem.a);
    operands.b = input(problem.b);
    operands.c = input(type_of_c(problem));
    operands.bias = input(type_of_c(problem));
    operands.d = d.data();
    if (pattern.config) {
      context_.gemm(problem, operands, stream, *pattern.config);
    } else {
      context_.gemm(problem, operands, stream);
    }
    return operands;
  }

  void poison(const Problem& problem, const DeviceMemory& d, Stream stream) {
    backend_->synchronize(stream);
    backend_->copy_to_device(d.data(), nan_.data(), std::size_t(matrix_d(normalise(problem)).batch_bytes()));
  }

  void check(const SoakPattern& pattern, const Problem& problem, const Operands& operands, Stream stream) {
    backend_->synchronize(stream);
    const Check check = check_against_reference(*backend_, normalise(problem), operands);
    ++checked_;
    if (check.passed()) return;
    fail(pattern, problem,
         fmt::format("D({}, {}) = {}, should be {}, within {:.3g}", check.row, check.column, check.got, check.expected,
                     check.allowed));
  }

  template <typename Body>
  void attempt(const SoakPattern& pattern, const Problem& problem, const Body& body) {
    try {
      body();
    } catch (const std::exception& error) {
      fail(pattern, problem, error.what());
    }
  }

  void fail(const SoakPattern& pattern, const Problem& problem, const std::string& what) {
    ++failures_;
    const std::lock_guard lock(mutex_);
    if (failure_texts_.size() >= failures_shown) return;
    failure_texts_.push_back(
        fmt::format("{}{}: {}", ProblemOptions::command_line(problem),
                    pattern.config ? " --config \"" + to_string(*pattern.config) + "\"" : std::string(), what));
  }

  void report(double seconds, const Memory& before, const Memory& after) const {
    const Counters counters = context_.counters();
    for (const std::string& text : failure_texts_) fmt::print(stderr, "jitgemm: failed: {}\n", text);
    if (options_.json) {
      print_json({{"device", to_json(context_.device())},
                  {"seed", seed_},
                  {"threads", options_.threads},
                  {"seconds", seconds},
                  {"patterns", patterns_.all().size()},
                  {"calls", calls_.load()},
                  {"calls_per_second", double(calls_) / seconds},
                  {"checked", checked_.load()},
                  {"failures", failures_.load()},
                  {"first_failures", failure_texts_},
                  {"memory_at_start", before.to_json()},
                  {"memory_at_end", after.to_json()},
                  {"kernels", {{"compiled", counters.compiles}, {"from_disk", counters.disk_hits}}}});
    } else {
      fmt::print("{:<9} {} in {:.1f} s, {:.0f} a second; {} checked, {} failed\n", "calls", calls_, seconds,
                 double(calls_) / seconds, checked_, failures_);
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

  std::barrier<> warm_;  // all threads and the main one, twice
  std::atomic<int> warmed_ = 0, failures_ = 0;
  std::atomic<std::uint64_t> calls_ = 0, checked_ = 0;
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
  command->add_option("--threads", options->threads, "Each with a stream of its own")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--check-every", options->check_every, "Calls of a thread from one check to the next")
      ->check(positive_number())
      ->capture_default_str();
  command
      ->add_option("--patterns", options->patterns, "Types, layouts, epilogues and configurations that are drawn from")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--max-size", options->max_size, "Of m, n and k, rounded up to 16 [2048; on the emulator 64]")
      ->check(CLI::Range(1, 1 << 15));
  command->add_option("--seed", options->seed, "Of all that is drawn [a new one, which is printed]");
  options->device.add_to(*command);
  options->device.add_tuning_to(*command);
  command->add_flag("--json", options->json, "For machines");
  command->footer(R"(
Results are compared with a float64 reference. A pattern has its own configuration or, one in four, the library's
choice (--tuning off unless told otherwise) for a few sizes; all other sizes are drawn for each call.
Examples:
  jitgemm soak --minutes 10
  jitgemm soak --device emulator --seconds 20 --threads 2 --patterns 10 --check-every 10
)");
  command->callback([options] {
    options->max_size = (options->max_size + 15) / 16 * 16;
    Soak(*options).all();
  });
}

}  // namespace jitgemm::cli
