// Times two builds of the library against each other in one process: the kernels of a corpus, and what a call costs the
// host. tools/ab/build.sh makes the program and says how to run it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "device.hpp"
#include "library.hpp"

namespace ab {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct Options {
  bool emulator = false;
  std::string type = "f16", type_d = "f16", layout = "nn", accumulation = "fast", csv;
  int rounds = 25, again = 10, host_rounds = 200;
  std::vector<std::string> shapes;
};

constexpr const char* usage =
    "usage: ab [OPTIONS] SHAPES...   files of `m n k` lines\n"
    "  --type T --d T --layout nn|nt|tn|tt --accumulation fast|promoted   of all shapes [f16 f16 nn fast]\n"
    "  --rounds N        that each graph is replayed in, in turn [25]\n"
    "  --again N         shapes that lose most, timed again at the end with four times the rounds [10]\n"
    "  --host-rounds N   of 100 calls each; 0 skips what a call costs the host [200]\n"
    "  --csv FILE        a line a shape\n"
    "  --emulator        only try the steps, on a CPU\n";

Options parse(int count, char** arguments) {
  Options options;
  const std::map<std::string, std::string*> texts{{"--type", &options.type},
                                                  {"--d", &options.type_d},
                                                  {"--layout", &options.layout},
                                                  {"--accumulation", &options.accumulation},
                                                  {"--csv", &options.csv}};
  const std::map<std::string, int*> numbers{
      {"--rounds", &options.rounds}, {"--again", &options.again}, {"--host-rounds", &options.host_rounds}};
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word == "--emulator") {
      options.emulator = true;
    } else if (texts.contains(word) && i + 1 < count) {
      *texts.at(word) = arguments[++i];
    } else if (numbers.contains(word) && i + 1 < count) {
      *numbers.at(word) = std::stoi(arguments[++i]);
    } else if (word.starts_with("-")) {
      throw std::runtime_error(word + " is no option, or lacks its value\n" + usage);
    } else {
      options.shapes.push_back(word);
    }
  }
  if (options.layout.size() != 2 || options.layout.find_first_not_of("nt") != std::string::npos)
    throw std::runtime_error("--layout is one of nn, nt, tn and tt");
  return options;
}

const char* layout_name(char letter) { return letter == 'n' ? "row_major" : "column_major"; }

std::size_t size_of(const std::string& type) {
  static const std::map<std::string, std::size_t> sizes{{"f16", 2}, {"bf16", 2}, {"e4m3", 1}, {"e5m2", 1},
                                                        {"s8", 1},  {"tf32", 4}, {"f32", 4},  {"s32", 4}};
  const auto found = sizes.find(type);
  if (found == sizes.end()) throw std::runtime_error("--type and --d: " + type + " is none that this times");
  return found->second;
}

/// Numbers of either sign from 1/16 to 1, by their bits.
std::vector<std::byte> random_numbers(const std::string& type, std::size_t bytes) {
  struct Format {
    int exponent_of_half, fraction_bits;
  };
  static const std::map<std::string, Format> formats{{"f16", {14, 10}}, {"bf16", {126, 7}},  {"e4m3", {6, 3}},
                                                     {"e5m2", {14, 2}}, {"tf32", {126, 23}}, {"f32", {126, 23}}};
  std::vector<std::byte> numbers(bytes);
  std::mt19937_64 random(1);
  const std::size_t size = size_of(type);
  for (std::size_t i = 0; i + size <= bytes; i += size) {
    std::uint64_t bits = random();
    if (const auto found = formats.find(type); found != formats.end()) {
      const auto [exponent, fraction_bits] = found->second;
      const std::uint64_t sign = bits >> 63, fraction = bits & ((std::uint64_t(1) << fraction_bits) - 1);
      bits = sign << (8 * size - 1) | std::uint64_t(exponent - int(bits >> 60 & 3)) << fraction_bits | fraction;
    }
    std::memcpy(numbers.data() + i, &bits, size);
  }
  return numbers;
}

/// One build of the library with a Context and a cache of its own.
class Side {
 public:
  Side(const AbLibrary* library, const char* device, const std::filesystem::path& cache)
      : library_(*library), context_(library_.open(device, cache.c_str())) {
    require(context_);
  }
  ~Side() { library_.close(context_); }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  const char* version() const { return library_.version(); }
  std::string choose(const AbProblem& problem) const {
    char config[512];
    require(library_.choose(context_, &problem, config, sizeof config));
    return config;
  }
  void* prepare(const AbProblem& problem, const std::string& config) const {
    void* const call = library_.prepare(context_, &problem, config.c_str());
    require(call);
    return call;
  }
  std::size_t workspace_size(void* call) const { return library_.workspace_size(call); }
  void gemm(void* call, const AbOperands& operands, CUstream stream) const {
    if (!library_.gemm(call, &operands, stream)) throw std::runtime_error(library_.error());
  }

 private:
  template <typename Result>
  void require(const Result& result) const {
    if (!result) throw std::runtime_error(library_.error());
  }

  const AbLibrary& library_;
  void* context_;
};

struct Shape {
  long long m = 0, n = 0, k = 0;
  std::string config;
  void *old_call = nullptr, *new_call = nullptr;
  std::string failure;
  double old_us = 0, again_us = 0, new_us = 0;
  bool same_bits = true;

  double gain() const { return old_us / new_us; }
  double noise() const { return old_us / again_us; }
  std::string name() const { return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k); }
};

std::vector<Shape> read_shapes(const std::vector<std::string>& files) {
  std::vector<Shape> shapes;
  for (const std::string& name : files) {
    std::ifstream file(name);
    if (!file) throw std::runtime_error("cannot read " + name);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line.substr(0, line.find('#')));
      Shape shape;
      if (words >> shape.m >> shape.n >> shape.k) shapes.push_back(shape);
    }
  }
  return shapes;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void parallel(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([&] {
      for (std::size_t item; (item = next++) < count;) body(item);
    });
  for (std::thread& thread : threads) thread.join();
}

/// Memory for one of a call's matrices, several times over.
struct Pool {
  std::byte* memory = nullptr;
  std::size_t bytes = 0, step = 0;
  std::byte* at(int set) const { return memory + std::size_t(set) * step; }
};

class Comparison {
 public:
  Comparison(const Options& options, const std::filesystem::path& directory)
      : options_(options),
        device_(options.emulator ? Device::host() : Device::cuda()),
        old_(jitgemm_ab_old(), device_->kind(), directory / "old"),
        new_(jitgemm_ab_new(), device_->kind(), directory / "new"),
        stream_(device_->create_stream()),
        shapes_(read_shapes(options.shapes)) {
    if (options.emulator) options_.rounds = 1, options_.host_rounds = std::min(options.host_rounds, 1);
  }

  int all() {
    std::printf("old %s, new %s; %zu shapes, %s to %s, %s, %s\n", old_.version(), new_.version(), shapes_.size(),
                options_.type.c_str(), options_.type_d.c_str(), options_.layout.c_str(), options_.accumulation.c_str());
    if (!shapes_.empty()) compare_kernels();
    if (options_.host_rounds > 0) compare_calls();
    return failed_ ? 1 : 0;
  }

 private:
  static constexpr std::size_t mebibyte = std::size_t(1) << 20;
  static constexpr std::size_t rotation_bytes = 200 * mebibyte;  // over three times the L2 of an H200
  static constexpr std::size_t workspace_bytes = 64 * mebibyte;
  static constexpr double round_us = 600;

  AbProblem problem_of(const Shape& shape) const {
    return {shape.m,
            shape.n,
            shape.k,
            options_.type.c_str(),
            options_.type_d.c_str(),
            layout_name(options_.layout[0]),
            layout_name(options_.layout[1]),
            options_.accumulation.c_str()};
  }

  void compare_kernels() {
    auto begin = Clock::now();
    compile();
    std::printf("compiled in %.0f s\n", seconds_since(begin));
    std::fflush(stdout);
    allocate();
    begin = Clock::now();
    for (Shape& shape : shapes_) attempt(shape, options_.rounds);
    std::printf("timed in %.0f s\n\n", seconds_since(begin));
    report();
  }

  /// The old library's choice, by both.
  void compile() {
    parallel(2 * shapes_.size(), [&](std::size_t i) {
      Shape& shape = shapes_[i / 2];
      try {
        device_->make_current();
        const AbProblem problem = problem_of(shape);
        const std::string config = old_.choose(problem);
        if (i % 2 == 0) {
          shape.config = config;
          shape.old_call = old_.prepare(problem, config);
        } else {
          shape.new_call = new_.prepare(problem, config);
        }
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex_);
        shape.failure = std::string(i % 2 ? "new: " : "old: ") + error.what();
      }
    });
  }

  void allocate() {
    const std::size_t size = size_of(options_.type), size_d = size_of(options_.type_d);
    std::size_t a = 0, b = 0, d = 0;
    for (const Shape& shape : shapes_) {
      a = std::max(a, padded(shape.m * shape.k, size));
      b = std::max(b, padded(shape.k * shape.n, size));
      d = std::max(d, padded(shape.m * shape.n, size_d));
    }
    const auto make = [&](Pool& pool, std::size_t largest, bool fill) {
      pool.bytes = std::max(largest, options_.emulator ? 0 : rotation_bytes);
      pool.memory = device_->allocate(pool.bytes);
      if (!fill) return;
      const std::vector<std::byte> numbers = random_numbers(options_.type, std::min(pool.bytes, 32 * mebibyte + 8));
      for (std::size_t at = 0; at < pool.bytes; at += numbers.size())
        device_->copy_to_device(pool.memory + at, numbers.data(), std::min(numbers.size(), pool.bytes - at));
    };
    make(a_, a, true);
    make(b_, b, true);
    make(d_, d, false);
    make(other_d_, d, false);
    workspace_ = device_->allocate(workspace_bytes);
  }

  static std::size_t padded(long long elements, std::size_t size) {
    return (std::size_t(elements) * size + 255) / 256 * 256;
  }

  void attempt(Shape& shape, int rounds) {
    try {
      if (shape.failure.empty()) time(shape, rounds);
    } catch (const std::exception& error) {
      shape.failure = error.what();
    }
  }

  void time(Shape& shape, int rounds) {
    if (std::max(old_.workspace_size(shape.old_call), new_.workspace_size(shape.new_call)) > workspace_bytes)
      throw std::runtime_error("needs more than 64 MiB of workspace");
    const int sets = rotate(shape);
    const auto operands = [&](int set) {
      return AbOperands{a_.at(set), b_.at(set), d_.at(set), workspace_, workspace_bytes};
    };
    shape.same_bits = same_bits(shape);

    const std::function<void(int)> arms[] = {
        [&](int set) { old_.gemm(shape.old_call, operands(set), stream_); },
        [&](int set) { old_.gemm(shape.old_call, operands(set), stream_); },
        [&](int set) { new_.gemm(shape.new_call, operands(set), stream_); },
    };
    const auto graph_of = [&](const std::function<void(int)>& arm, int launches) {
      return device_->capture(stream_, [&arm, launches, sets] {
        for (int i = 0; i < launches; ++i) arm(i % sets);
      });
    };
    const auto trial = graph_of(arms[0], 4);
    trial->replay_us();
    const int launches =
        options_.emulator ? 1 : int(std::clamp(4 * round_us / std::max(trial->replay_us(), 1.0), 4.0, 300.0));
    std::vector<std::unique_ptr<Device::Graph>> graphs;
    for (const auto& arm : arms) graphs.push_back(graph_of(arm, launches));

    std::vector<std::vector<double>> us(graphs.size());
    std::vector<std::size_t> order(graphs.size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    const int warm_up = options_.emulator ? 0 : std::max(3, rounds / 5);
    for (int round = -warm_up; round < rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random_);
      for (const std::size_t arm : order) {
        const double time = graphs[arm]->replay_us() / launches;
        if (round >= 0) us[arm].push_back(time);
      }
    }
    shape.old_us = median(us[0]);
    shape.again_us = median(us[1]);
    shape.new_us = median(us[2]);
  }

  /// As many sets of matrices as exceed the L2, or fit.
  int rotate(const Shape& shape) {
    const std::size_t size = size_of(options_.type);
    a_.step = padded(shape.m * shape.k, size);
    b_.step = padded(shape.k * shape.n, size);
    d_.step = padded(shape.m * shape.n, size_of(options_.type_d));
    std::size_t sets = rotation_bytes / (a_.step + b_.step + d_.step) + 1;
    for (const Pool* pool : {&a_, &b_, &d_}) sets = std::min(sets, pool->bytes / pool->step);
    return int(std::max<std::size_t>(sets, 1));
  }

  /// Whether both libraries give the same D, of which NaN stood there before.
  bool same_bits(const Shape& shape) {
    const std::size_t bytes = std::size_t(shape.m * shape.n) * size_of(options_.type_d);
    std::string nan(bytes, '\xff'), old_bits(bytes, '\0'), new_bits(bytes, '\0');
    AbOperands operands{a_.at(0), b_.at(0), d_.at(0), workspace_, workspace_bytes};
    device_->copy_to_device(operands.d, nan.data(), bytes);
    old_.gemm(shape.old_call, operands, stream_);
    device_->synchronize(stream_);
    device_->copy_to_host(old_bits.data(), operands.d, bytes);
    operands.d = other_d_.memory;
    device_->copy_to_device(operands.d, nan.data(), bytes);
    new_.gemm(shape.new_call, operands, stream_);
    device_->synchronize(stream_);
    device_->copy_to_host(new_bits.data(), operands.d, bytes);
    return old_bits == new_bits;
  }

  void report() {
    std::vector<Shape*> timed;
    for (Shape& shape : shapes_) {
      if (shape.failure.empty()) {
        timed.push_back(&shape);
        continue;
      }
      failed_ = true;
      std::printf("failed: %s (%s): %s\n", shape.name().c_str(), shape.config.c_str(), shape.failure.c_str());
    }
    if (timed.empty()) return;
    std::printf("above 1: the second is faster   shapes  geomean      p5     p50     p95   least\n");
    const auto line = [&](const char* name, double (Shape::*ratio)() const) {
      std::vector<double> ratios;
      double sum = 0;
      for (const Shape* shape : timed) ratios.push_back((shape->*ratio)()), sum += std::log(ratios.back());
      std::ranges::sort(ratios);
      const auto at = [&](double part) { return ratios[std::size_t(std::lround(part * double(ratios.size() - 1)))]; };
      const Shape* const least = *std::ranges::min_element(timed, {}, ratio);
      std::printf("%-28s %9zu   %.4f  %.4f  %.4f  %.4f  %.4f at %s\n", name, ratios.size(),
                  std::exp(sum / double(ratios.size())), at(0.05), at(0.5), at(0.95), at(0), least->name().c_str());
    };
    line("old / old, a second graph", &Shape::noise);
    line("old / new", &Shape::gain);
    write_csv();

    const auto differ = std::ranges::count_if(timed, [](const Shape* shape) { return !shape->same_bits; });
    std::printf("bits of D differ in %td shapes", differ);
    int shown = 0;
    for (const Shape* shape : timed) {
      if (!shape->same_bits && shown++ < 5)
        std::printf("%s %s (%s)", shown == 1 ? ":" : ",", shape->name().c_str(), shape->config.c_str());
    }
    std::printf("\n");

    std::ranges::sort(timed, {}, &Shape::gain);
    timed.resize(std::min(timed.size(), std::size_t(options_.again)));
    if (!timed.empty()) std::printf("\nthe least again, with %d rounds\n", 4 * options_.rounds);
    for (Shape* shape : timed) {
      const double before = shape->gain();
      attempt(*shape, 4 * options_.rounds);
      std::printf("%-18s %9.3f us old %9.3f us new   %.4f, was %.4f   noise %.4f   %s\n", shape->name().c_str(),
                  shape->old_us, shape->new_us, shape->gain(), before, shape->noise(), shape->config.c_str());
    }
    std::fflush(stdout);
  }

  void write_csv() const {
    if (options_.csv.empty()) return;
    std::ofstream csv(options_.csv);
    csv << "m,n,k,config,old_us,old_again_us,new_us,old_over_new,same_bits,failure\n";
    for (const Shape& shape : shapes_) {
      std::string failure = shape.failure;
      std::ranges::replace(failure, ',', ';');
      std::ranges::replace(failure, '\n', ' ');
      csv << shape.m << ',' << shape.n << ',' << shape.k << ',' << shape.config << ',' << shape.old_us << ','
          << shape.again_us << ',' << shape.new_us << ',' << (shape.new_us > 0 ? shape.gain() : 0) << ','
          << shape.same_bits << ',' << failure << '\n';
    }
    if (!csv.flush()) throw std::runtime_error("cannot write " + options_.csv);
  }

  // What a warm call costs the host, with the Context's own workspace.

  struct HostCase {
    const char* name;
    long long m, n, k;
    char layout_b;
    const char* config;  ///< empty: the library's choice
  };

  void compare_calls() {
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
        compare_call(one, 1);
      } catch (const std::exception& error) {
        failed_ = true;
        std::printf("%-24s failed: %s\n", one.name, error.what());
      }
    }
    std::printf("8 threads, a stream each: ns of wall time a call, of all\n");
    for (const HostCase& one : {cases[0], cases[3], cases[4]}) compare_call(one, 8);
  }

  void compare_call(const HostCase& one, int threads) {
    const AbProblem problem{one.m, one.n, one.k, "f16", "f16", "row_major", layout_name(one.layout_b), "fast"};
    void* const old_call = old_.prepare(problem, one.config);
    void* const new_call = new_.prepare(problem, one.config);
    struct Caller {
      CUstream stream;
      AbOperands operands;
    };
    std::vector<Caller> callers;
    const std::size_t bytes = std::size_t(std::max({one.m * one.k, one.k * one.n, one.m * one.n})) * 2;
    for (int i = 0; i < threads; ++i) {
      callers.push_back({device_->create_stream(),
                         {device_->allocate(bytes), device_->allocate(bytes), device_->allocate(bytes), nullptr, 0}});
      const std::vector<std::byte> zeros(bytes);
      device_->copy_to_device(const_cast<void*>(callers.back().operands.a), zeros.data(), bytes);
      device_->copy_to_device(const_cast<void*>(callers.back().operands.b), zeros.data(), bytes);
    }
    const int calls = options_.emulator ? 1 : 100;
    const auto ns_a_call = [&](const Side& side, void* call) {
      std::barrier start(threads + 1);
      std::vector<std::thread> workers;
      std::string failure;
      const auto work = [&](const Caller& caller) {
        for (int i = 0; i < calls; ++i) side.gemm(call, caller.operands, caller.stream);
      };
      if (threads == 1) {  // no start of a thread in the time
        const auto begin = Clock::now();
        work(callers[0]);
        const double seconds = seconds_since(begin);
        device_->synchronize(callers[0].stream);
        return 1e9 * seconds / calls;
      }
      for (const Caller& caller : callers) {
        workers.emplace_back([&] {
          try {
            device_->make_current();
            start.arrive_and_wait();
            for (int repeat = 0; repeat < 10; ++repeat) work(caller);
          } catch (const std::exception& error) {
            const std::lock_guard lock(mutex_);
            failure = error.what();
          }
        });
      }
      start.arrive_and_wait();
      const auto begin = Clock::now();
      for (std::thread& worker : workers) worker.join();
      const double seconds = seconds_since(begin);
      for (const Caller& caller : callers) device_->synchronize(caller.stream);
      if (!failure.empty()) throw std::runtime_error(failure);
      return 1e9 * seconds / (10.0 * calls * threads);
    };
    std::vector<double> old_ns, new_ns;
    const int rounds = threads == 1 ? options_.host_rounds : std::max(1, options_.host_rounds / 20);
    for (int round = -std::max(1, rounds / 10); round < rounds; ++round) {
      double old_time = 0, new_time = 0;
      if (random_() % 2) {
        old_time = ns_a_call(old_, old_call);
        new_time = ns_a_call(new_, new_call);
      } else {
        new_time = ns_a_call(new_, new_call);
        old_time = ns_a_call(old_, old_call);
      }
      if (round < 0) continue;
      old_ns.push_back(old_time);
      new_ns.push_back(new_time);
    }
    std::printf("%-24s %8.0f %8.0f %+8.0f\n", one.name, median(old_ns), median(new_ns),
                median(new_ns) - median(old_ns));
    std::fflush(stdout);
  }

  Options options_;
  std::unique_ptr<Device> device_;
  Side old_, new_;
  CUstream stream_;
  std::vector<Shape> shapes_;
  Pool a_, b_, d_, other_d_;
  std::byte* workspace_ = nullptr;
  std::mt19937 random_{1};
  std::mutex mutex_;
  bool failed_ = false;
};

}  // namespace
}  // namespace ab

int main(int count, char** arguments) {
  char name[] = "/tmp/jitgemm-ab-XXXXXX";
  int status = 1;
  try {
    const ab::Options options = ab::parse(count, arguments);
    if (!mkdtemp(name)) throw std::runtime_error("cannot make a folder in /tmp");
    status = ab::Comparison(options, name).all();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ab: error: %s\n", error.what());
  }
  std::error_code ignored;
  std::filesystem::remove_all(name, ignored);
  return status;
}
