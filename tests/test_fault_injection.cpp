// Every driver and NVRTC call in turn fails, wherever a Context makes it: what the user sees then is the table of
// tools/results/faults.md.
#include <cstddef>
#include <iostream>
#include <regex>

#include "catch.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "fault_injection.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sample_configs.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// How much is alive.
struct Books {
  std::size_t objects = FakeGpu::alive.size(), programs = FakeNvrtc::alive.size();
  int retained = FakeGpu::retained;
  bool operator==(const Books&) const = default;
  std::size_t count() const { return objects + programs + std::size_t(retained); }
};

/// A process that uses the library, from loading the driver to the end of the Context, step by step.
class Scenario {
 public:
  Scenario() {
    FakeGpu::reset();
    FakeNvrtc::reset();
    Faults::reset();
    unwrapped<cuda::DriverApi> = FakeGpu::api();
    unwrapped<cuda::NvrtcApi> = FakeNvrtc::api();
    logger().set_level(spdlog::level::info);
    FakeGpu::current = own_context();
    for (void*& operand : memory_) operand = FakeGpu::allocate(largest * largest * sizeof(std::uint16_t));
    for (int i = 0; i < largest * largest; ++i) {
      store(i % 5 - 2, memory_[0], i, f16);
      store(i % 7 - 3, memory_[1], i, f16);
    }
  }
  ~Scenario() {
    Faults::fault.reset();
    context_.reset();
    cuda::driver_for_tests = nullptr;
    cuda::nvrtc_for_tests = nullptr;
    logger().set_level(spdlog::level::warn);
    FakeGpu::reset();
  }
  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;

  /// The one that is current on the test's thread, and is nothing to the library.
  static CUcontext own_context() { return FakeGpu::context(9); }

  void load_driver() {
    driver_ = cuda::bind_driver(symbols<DriverFunctions>());
    cuda::driver_for_tests = &driver_;
  }
  void load_nvrtc() {
    nvrtc_ = cuda::bind_nvrtc(symbols<NvrtcFunctions>(), "libnvrtc.so");
    nvrtc_.name = cuda::exact_name(nvrtc_);
    cuda::nvrtc_for_tests = &nvrtc_;
  }
  void list_devices() { require(cuda_devices().size() == 1, "the device is listed"); }
  void make_context() {
    const WithCurrent none(nullptr);
    context_.emplace(options());
  }
  void make_context_in_own() {
    const WithCurrent own(FakeGpu::context(1));
    Context(options()).device();
  }
  void compile() { require(context_->compile(problem, split).registers == 96, "registers are read"); }
  void gemm_split() { run(problem, &split); }
  void gemm_tma() { run(problem, &tma); }
  void gemm_captured() {
    FakeGpu::capturing = true;
    const auto end = std::unique_ptr<bool, void (*)(bool*)>(&FakeGpu::capturing, [](bool* on) { *on = false; });
    run(problem, &stream_k);
  }
  void gemm_refused() {
    Faults::always["cuModuleLoadData"] = CUDA_ERROR_NO_BINARY_FOR_GPU;
    const auto end = finally();
    run(problem, &other);
  }
  void compile_refused() {
    Faults::always["nvrtcCompileProgram"] = NVRTC_ERROR_COMPILATION;
    const auto end = finally();
    context_->compile(problem, another);
  }
  void gemm_tuned() { run({.m = 16, .n = 16, .k = 64}, nullptr); }
  void tune() { require(context_->tune({.m = 8, .n = 16, .k = 64}).plan.measured_us > 0, "something is measured"); }
  void end() { context_.reset(); }

  /// What the log says, by line, and forgets it.
  std::vector<std::string> said() {
    std::vector<std::string> lines;
    std::istringstream text(log_->text());
    for (std::string line; std::getline(text, line);) {
      if (!line.starts_with("info: tuned ")) lines.push_back(without_names(line));
    }
    log_.emplace();
    return lines;
  }
  /// The text without what differs from one machine or version to the next.
  std::string without_names(std::string text) const {
    const std::string cache = cache_.path().string();
    for (std::size_t at; (at = text.find(cache)) != std::string::npos;) text.replace(at, cache.size(), "CACHE");
    text = std::regex_replace(text, std::regex("CACHE/\\S+"), "(file)");
    text = std::regex_replace(text, std::regex("of [0-9]+ bytes"), "of (n) bytes");
    text = std::regex_replace(text, std::regex("Tiled of [^(]*\\([^)]*\\)"), "Tiled of (a matrix)");
    text = std::regex_replace(text, std::regex("(tuning skipped|tuning of) [^:]*?(:| given up)"), "$1 (it)$2");
    return text;
  }

 private:
  static constexpr int largest = 128;
  static constexpr Problem problem{.m = 16, .n = 16, .k = 128};
  const KernelConfig split = with_schedule(sm80_config, Schedule::split_k, 2, 0);
  const KernelConfig tma = with_schedule(sm90_config, Schedule::stream_k, 1, 2);
  const KernelConfig stream_k = with_schedule(sm80_config, Schedule::stream_k, 1, 3);
  const KernelConfig other = with_schedule(sm90_config, Schedule::data_parallel, 1, 0);
  const KernelConfig another = with_schedule(sm90_config, Schedule::split_k, 2, 0);

  struct WithCurrent {
    explicit WithCurrent(CUcontext context) : before(std::exchange(FakeGpu::current, context)), given(context) {}
    ~WithCurrent() {
      if (FakeGpu::current == given) FakeGpu::current = before;
    }
    CUcontext before, given;
  };
  struct Forget {
    ~Forget() { Faults::always.clear(); }
  };
  static Forget finally() { return {}; }
  static void require(bool ok, const char* what) {
    if (!ok) throw std::runtime_error(std::string("not so: ") + what);
  }

  ContextOptions options() const {
    return {.tuning = Tuning::on, .tuning_budget_seconds = 60, .cache_dir = cache_.path().string()};
  }

  void run(const Problem& what, const KernelConfig* config) {
    std::memset(memory_[2], 0xff, largest * largest * sizeof(std::uint16_t));
    const Operands operands{.a = memory_[0], .b = memory_[1], .d = memory_[2]};
    const auto stream = reinterpret_cast<Stream>(std::uintptr_t(0x5000));
    config ? context_->gemm(what, operands, stream, *config) : context_->gemm(what, operands, stream);
    for (int i = 0; i < what.m; ++i) {
      for (int j = 0; j < what.n; ++j) {
        double sum = 0;
        for (int l = 0; l < what.k; ++l)
          sum += load(memory_[0], i * what.k + l, f16) * load(memory_[1], l * what.n + j, f16);
        require(load(memory_[2], i * what.n + j, f16) == sum, "D is right");
      }
    }
  }

  /// Where syncing costs nothing.
  struct InMemory {
    ScopedEnvironment folder{"TMPDIR", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::getenv("TMPDIR")};
    TemporaryDirectory made;
    const std::filesystem::path& path() const { return made.path(); }
  };
  const InMemory cache_;
  std::optional<CapturedLog> log_{std::in_place};
  cuda::DriverApi driver_;
  cuda::NvrtcApi nvrtc_;
  void* memory_[3] = {};
  std::optional<Context> context_;
};

struct Step {
  const char* name;
  void (Scenario::*run)();
  std::optional<ErrorCode> fails = {};  ///< what it ends with without a further fault
  bool tunes = false;                   ///< keeps fewer kernels when something fails
  std::size_t keeps_each_time = 0;      ///< what every call keeps that succeeds
};
const std::vector<Step> steps{
    {"loading the driver", &Scenario::load_driver},
    {"loading NVRTC", &Scenario::load_nvrtc},
    {"cuda_devices()", &Scenario::list_devices},
    {"Context()", &Scenario::make_context},
    {"a Context's life in the thread's own CUDA context", &Scenario::make_context_in_own},
    {"compile()", &Scenario::compile},
    {"gemm(), cached on disk", &Scenario::gemm_split},
    {"gemm() again", &Scenario::gemm_split},
    {"gemm(), new, by TMA", &Scenario::gemm_tma},
    {"gemm(), captured", &Scenario::gemm_captured, {}, false, 2},
    {"gemm(), refused by the driver", &Scenario::gemm_refused, ErrorCode::load_failed},
    {"compile(), refused by NVRTC", &Scenario::compile_refused, ErrorCode::compile_failed},
    {"gemm() that tunes first", &Scenario::gemm_tuned, {}, true},
    {"tune()", &Scenario::tune, {}, true},
    {"~Context()", &Scenario::end},
};

/// What a call may plausibly answer.
std::vector<int> failures_of(const std::string& function) {
  static const std::map<std::string, std::vector<int>> known{
      {"cuInit", {CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH}},
      {"cuDeviceGet", {CUDA_ERROR_INVALID_DEVICE}},
      {"cuDevicePrimaryCtxRetain", {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_DEVICE}},
      {"cuCtxGetCurrent", {CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_DEINITIALIZED}},
      {"cuCtxPushCurrent", {CUDA_ERROR_INVALID_CONTEXT}},
      {"cuCtxPopCurrent", {CUDA_ERROR_INVALID_CONTEXT}},
      {"cuModuleLoadData",
       {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}},
      {"cuModuleGetFunction", {CUDA_ERROR_NOT_FOUND}},
      {"cuFuncSetAttribute", {CUDA_ERROR_INVALID_VALUE}},
      {"cuLaunchKernelEx", {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_ILLEGAL_ADDRESS}},
      {"cuTensorMapEncodeTiled", {CUDA_ERROR_INVALID_VALUE}},
      {"cuMemAlloc", {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ILLEGAL_ADDRESS}},
      {"cuPointerGetAttributes", {CUDA_ERROR_INVALID_VALUE}},
      {"cuStreamCreate", {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}},
      {"cuStreamSynchronize", {CUDA_ERROR_ILLEGAL_ADDRESS}},
      {"cuStreamGetId", {CUDA_ERROR_INVALID_HANDLE}},
      {"cuStreamIsCapturing", {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT}},
      {"cuEventCreate", {CUDA_ERROR_OUT_OF_MEMORY}},
      {"cuEventSynchronize", {CUDA_ERROR_ILLEGAL_ADDRESS}},
      {"nvrtcCreateProgram", {NVRTC_ERROR_OUT_OF_MEMORY, NVRTC_ERROR_INTERNAL_ERROR}},
      {"nvrtcCompileProgram",
       {NVRTC_ERROR_COMPILATION, NVRTC_ERROR_OUT_OF_MEMORY, NVRTC_ERROR_INVALID_OPTION,
        NVRTC_ERROR_BUILTIN_OPERATION_FAILURE, NVRTC_ERROR_INTERNAL_ERROR}}};
  const auto found = known.find(function);
  if (found != known.end()) return found->second;
  return {function.starts_with("cu") ? int(CUDA_ERROR_UNKNOWN) : int(NVRTC_ERROR_INTERNAL_ERROR)};
}

std::string name_of(const std::string& function, int result) {
  if (!function.starts_with("cu")) return FakeNvrtc::api().get_error_string(nvrtcResult(result));
  const char* name = nullptr;
  FakeGpu::api().get_error_name(CUresult(result), &name);
  return name;
}

struct Counted {
  std::map<Faults::Key, int> calls;
  Books books;
};

/// What each step calls and keeps when nothing fails.
std::vector<Counted> without_faults() {
  Scenario scenario;
  std::vector<Counted> counted;
  for (const Step& step : steps) {
    Faults::counts.clear();
    std::optional<ErrorCode> failed;
    try {
      (scenario.*step.run)();
    } catch (const Error& error) {
      UNSCOPED_INFO(error.what());
      failed = error.code();
    }
    INFO(step.name);
    CHECK(failed == step.fails);
    CHECK(scenario.said() == std::vector<std::string>{});
    counted.push_back({Faults::counts, {}});
  }
  CHECK(counted.back().books.count() == 0);
  return counted;
}

int count(const std::vector<std::string>& lines, const std::string& word) {
  return int(std::count_if(lines.begin(), lines.end(),
                           [&](const std::string& line) { return line.find(word) != std::string::npos; }));
}

/// Runs the scenario up to a step in which a call fails, checks what that leaves behind, and says what the user sees.
std::string with_fault(std::size_t place, const Faults::Fault& fault, const std::vector<Counted>& expected) {
  const Step& step = steps[place];
  Scenario scenario;
  for (std::size_t i = 0; i < place; ++i) {
    try {
      (scenario.*steps[i].run)();
    } catch (const Error&) {
      if (!steps[i].fails) throw;
    }
  }
  scenario.said();

  std::string seen;
  std::size_t lost = 0;  // what the log says could not be freed
  std::vector<std::size_t> after_failures;
  std::size_t successes = 0;
  constexpr int rounds = 8;
  for (int round = 0; round < rounds; ++round) {
    Faults::arm(fault);
    std::optional<Error> error;
    try {
      (scenario.*step.run)();
    } catch (const Error& thrown) {
      error = thrown;
    }
    Faults::fault.reset();
    successes += !error;
    const std::vector<std::string> said = scenario.said();
    if (!Faults::fired) {
      CHECK(round > 0);
      break;
    }

    lost += std::size_t(count(said, "stays until"));
    if (count(said, "current context may be another")) {
      FakeGpu::stack.clear();
      FakeGpu::current = Scenario::own_context();
    }
    if (count(said, "capture mode stays relaxed")) FakeGpu::capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CHECK(FakeGpu::current == Scenario::own_context());
    CHECK(FakeGpu::stack.empty());
    CHECK(FakeGpu::capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);

    if (round == 0) {
      if (error) {
        seen = "`" + to_string(error->code()) + "`: " + scenario.without_names(error->what());
        CHECK_FALSE(error->call().empty());
        CHECK(seen.find('\n') == std::string::npos);
        if (!step.fails) {
          // A matrix that the driver refuses to describe is a bug of the library's.
          CHECK((error->code() == ErrorCode::internal) == (fault.function == "cuTensorMapEncodeTiled"));
          if (fault.function != "nvrtcCompileProgram") CHECK_THAT(error->what(), ContainsSubstring(fault.function));
          CHECK_THAT(error->call(), ContainsSubstring(fault.function));
          CHECK(said.empty());
        }
      } else {
        seen = "carries on";
        CAPTURE(said);
        CHECK(said.size() <= 1);
        for (const std::string& line : said) seen += "; log: " + line;
      }
    }
    if (!error || step.fails) {
      // Gone: the driver has freed what was not.
      lost += step.run == &Scenario::end && fault.function == "cuCtxGetCurrent" &&
              fault.result == CUDA_ERROR_DEINITIALIZED;
      break;
    }
    after_failures.push_back(Books().count());
  }
  // Failing again and again keeps no more each time, once the parts that work are done.
  if (after_failures.size() == rounds) CHECK(after_failures[rounds - 1] == after_failures[rounds - 2]);

  if (!step.fails && step.run != &Scenario::end) {
    CHECK_NOTHROW((scenario.*step.run)());
    CHECK(scenario.said() == std::vector<std::string>{});
    ++successes;
  }
  const std::size_t kept = Books().count();
  const std::size_t at_most =
      expected[place].books.count() + lost + (step.fails ? 0 : (successes - 1) * step.keeps_each_time);
  CHECK(kept <= at_most);
  if (!step.tunes) CHECK(kept == at_most);
  scenario.end();
  CHECK(Books().count() == lost);
  return seen;
}

/// Which of n calls are made to fail.
std::vector<int> occurrences(int n, const Step& step) {
  std::vector<int> some;
  for (int i = 1; i <= std::min(n, 6); ++i) some.push_back(i);
  if (n > 6 && !step.tunes) some.push_back(n);  // who wins is not always the same, and what it needs
  return some;
}

struct Row {
  std::string call, result, seen;
  std::vector<std::string> where;
};

class FaultTable {
 public:
  explicit FaultTable(const std::vector<Counted>& counted) : counted_(counted) {}

  template <typename Functions>
  void fail_each() {
    for_each_function<Functions>([this](auto function) {
      if (function.can_fail) fail(function.text);
    });
  }
  void add(const std::string& call, const std::string& result, const std::string& seen, const std::string& where) {
    for (Row& row : rows_) {
      if (row.call != call || row.result != result || row.seen != seen) continue;
      if (std::find(row.where.begin(), row.where.end(), where) == row.where.end()) row.where.push_back(where);
      return;
    }
    rows_.push_back({call, result, seen, {where}});
  }
  std::string text() const {
    std::string text;
    for (const Row& row : rows_) {
      std::string where;
      for (const std::string& one : row.where) where += (where.empty() ? "" : "; ") + one;
      text += "| " + row.call + " | " + row.result + " | " + where + " | " + row.seen + " |\n";
    }
    return text;
  }

 private:
  void fail(const std::string& function) {
    bool called = false;
    for (std::size_t place = 0; place < steps.size(); ++place) {
      for (const bool helper_thread : {false, true}) {
        const auto found = counted_[place].calls.find({function, helper_thread});
        if (found == counted_[place].calls.end()) continue;
        called = true;
        const std::vector<int> results = failures_of(function);
        for (const int occurrence : helper_thread ? std::vector{1} : occurrences(found->second, steps[place])) {
          for (const int result : results) {
            if (occurrence > 1 && result != results[0]) continue;
            const std::string where = std::string(steps[place].name) + (helper_thread ? ", on a compiling thread" : "");
            INFO(function << " = " << name_of(function, result) << ", call " << occurrence << " in " << where);
            add(function, name_of(function, result),
                with_fault(place, {function, helper_thread, occurrence, result}, counted_), where);
          }
        }
      }
    }
    INFO(function);
    CHECK(called);
  }

  const std::vector<Counted>& counted_;
  std::vector<Row> rows_;
};

template <typename Functions, typename Load>
void miss_each(FaultTable& table, const char* where, ErrorCode code, Load load) {
  for_each_function<Functions>([&](auto function) {
    try {
      load(function.text);
      FAIL(function.text << " is not missed");
    } catch (const Error& error) {
      CHECK(error.code() == code);
      CHECK_THAT(error.what(), ContainsSubstring(function.text));
      std::string text = error.what();
      text = std::regex_replace(text, std::regex(function.text + std::string("(_v2)?")), "(it)");
      table.add("each", "not there", "`" + to_string(error.code()) + "`: " + text, where);
    }
  });
}

constexpr const char* head =
    R"(# What a user sees when a CUDA call fails

Written by the test "Whichever driver or NVRTC call fails, there is one Error or one line in the log, and nothing is lost",
which makes each call of the driver and of NVRTC fail in turn, wherever a Context makes it, over a driver and an NVRTC that
keep books. It also checks that nothing leaks, that the thread's current CUDA context and capture mode are as before, and
that the next call works. The test fails when this file does not match; to write it anew:

    JITGEMM_TEST_FAULTS=tools/results/faults.md tests "Whichever driver or NVRTC call fails*"

"carries on" means that the call returns as usual. Log lines marked `info` show only at JITGEMM_LOG=info. (it), (n), (file)
stand for what depends on the problem.

| call | answers | while in | what the user sees |
| --- | --- | --- | --- |
)";

}  // namespace

TEST_CASE(
    "Whichever driver or NVRTC call fails, there is one Error or one line in the log, and nothing is lost",
    "[faults]") {
  const std::vector<Counted> counted = without_faults();
  FaultTable table(counted);
  table.fail_each<DriverFunctions>();
  table.fail_each<NvrtcFunctions>();
  {
    Scenario scenario;
    miss_each<DriverFunctions>(table, "loading the driver", ErrorCode::no_device,
                               [](const char* name) { cuda::bind_driver(symbols<DriverFunctions>(name)); });
    miss_each<NvrtcFunctions>(table, "loading NVRTC", ErrorCode::no_compiler,
                              [](const char* name) { cuda::bind_nvrtc(symbols<NvrtcFunctions>(name), "libnvrtc.so"); });
  }
  const std::string text = head + table.text();
  if (const char* path = std::getenv("JITGEMM_TEST_FAULTS")) write_file(path, text);
  INFO("tools/results/faults.md does not match; write it anew as it says, and read the difference");
  std::istringstream now(text), before(file_text(JITGEMM_SOURCE_DIR "/tools/results/faults.md"));
  while (now && before) {
    std::string line, recorded;
    std::getline(now, line);
    std::getline(before, recorded);
    REQUIRE(line == recorded);
  }
  CHECK(now.eof() == before.eof());
}
