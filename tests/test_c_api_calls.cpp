// Contexts, plans, callbacks and last errors by way of C.
#include <barrier>
#include <set>
#include <thread>

#include "backend/cuda/cuda_backend.hpp"
#include "c_context.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A CUDA device that is none, options for it, and a problem with its memory.
class Fixture {
 public:
  Fixture() {
    FakeGpu::reset();
    FakeNvrtc::reset();
    cuda::driver_for_tests = &driver;
    cuda::nvrtc_for_tests = &nvrtc;
    for (const void** operand : {&operands.a, &operands.b, &operands.c}) *operand = FakeGpu::allocate(bytes);
    operands.d = FakeGpu::allocate(bytes);
    problem.m = problem.n = problem.k = 64;
    options.tuning = JITGEMM_TUNING_OFF;
    options.cache_dir = cache_path_.c_str();
  }
  ~Fixture() {
    end();
    cuda::driver_for_tests = nullptr;
    cuda::nvrtc_for_tests = nullptr;
    FakeGpu::reset();
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  jitgemm_status begin() {
    end();
    return jitgemm_context_create(&options, &context);
  }
  void end() { jitgemm_context_destroy(std::exchange(context, nullptr)); }
  jitgemm_status gemm(const jitgemm_config* config = nullptr, jitgemm_stream stream = nullptr) {
    return jitgemm_gemm(context, &problem, config, &operands, stream);
  }
  std::uint64_t launches() const {
    auto counters = made_by<jitgemm_counters>(jitgemm_counters_init);
    throw_unless_success(jitgemm_get_counters(context, &counters));
    return counters.launches;
  }

  static constexpr std::size_t bytes = 8192;
  cuda::DriverApi driver = FakeGpu::api();
  cuda::NvrtcApi nvrtc = FakeNvrtc::api();
  jitgemm_options options = made_by<jitgemm_options>(jitgemm_options_init);
  jitgemm_problem problem = made_by<jitgemm_problem>(jitgemm_problem_init);
  jitgemm_operands operands = made_by<jitgemm_operands>(jitgemm_operands_init);
  jitgemm_context* context = nullptr;

 private:
  const TemporaryDirectory cache_;
  const std::string cache_path_ = cache_.path().string();
};

jitgemm_config split_config() {
  auto config = made_by<jitgemm_config>(jitgemm_config_init);
  config.block_m = config.block_n = 64;
  config.schedule = JITGEMM_SPLIT_K;
  config.splits = 2;
  return config;
}

/// The kernels' templates without the barrier that lets threads read what others have loaded.
void write_broken_templates(const std::filesystem::path& to) {
  std::filesystem::copy(JITGEMM_SOURCE_DIR "/templates", to, std::filesystem::copy_options::recursive);
  std::string text = file_text(to / "mainloop_sm80.cuh");
  const std::string barrier = "ptx::bar_sync(0, THREADS);               //";
  const std::size_t at = text.find(barrier);
  REQUIRE(at != std::string::npos);
  write_file(to / "mainloop_sm80.cuh", text.replace(at, barrier.size(), "//"));
}

}  // namespace

TEST_CASE("Each status is what some call comes to", "[c]") {
  Fixture f;
  std::set<jitgemm_status> reached;
  const auto reach = [&](jitgemm_status status) {
    INFO(jitgemm_status_name(status) << ": " << jitgemm_last_error_message());
    CHECK(reached.insert(status).second);
    if (status != JITGEMM_STATUS_SUCCESS) {
      CHECK(jitgemm_last_error_status() == status);
      CHECK(std::string(jitgemm_last_error_message()).size() > 20);
    }
    return status;
  };
  // Of arguments.
  CHECK(reach(f.begin()) == JITGEMM_STATUS_SUCCESS);
  f.problem.m = -1;
  CHECK(reach(f.gemm()) == JITGEMM_STATUS_INVALID_PROBLEM);
  f.problem.m = 64;
  std::swap(f.operands.a, f.operands.c);
  f.operands.a = nullptr;
  CHECK(reach(f.gemm()) == JITGEMM_STATUS_INVALID_OPERAND);
  CHECK_THAT(jitgemm_last_error_problem(), ContainsSubstring("m=64 n=64 k=64"));
  f.operands.a = f.operands.c;
  jitgemm_config config = split_config();
  config.block_m = 63;
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_INVALID_CONFIG);
  CHECK_THAT(jitgemm_last_error_config(), ContainsSubstring("sm80 63x64x32"));
  CHECK(reach(f.gemm(reinterpret_cast<jitgemm_config*>(&f.problem))) == JITGEMM_STATUS_INVALID_ARGUMENT);
  char text[2];
  CHECK(reach(jitgemm_problem_to_string(&f.problem, text, 2, nullptr)) == JITGEMM_STATUS_BUFFER_TOO_SMALL);
  config = split_config();
  f.operands.workspace = FakeGpu::allocate(256);
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_WORKSPACE_TOO_SMALL);
  f.operands.workspace = nullptr;

  // Of the driver and NVRTC.
  f.driver.mem_alloc = [](CUdeviceptr*, std::size_t) { return CUDA_ERROR_OUT_OF_MEMORY; };
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_OUT_OF_MEMORY);
  CHECK_THAT(jitgemm_last_error_call(), ContainsSubstring("cuMemAlloc"));
  f.driver = FakeGpu::api();
  f.driver.launch_kernel_ex = [](const CUlaunchConfig*, CUfunction, void**, void**) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  CHECK(reach(f.gemm()) == JITGEMM_STATUS_LAUNCH_FAILED);
  f.driver = FakeGpu::api();
  f.driver.graph_retain_user_object = [](auto...) { return CUDA_ERROR_NOT_SUPPORTED; };
  const auto stream = reinterpret_cast<jitgemm_stream>(std::uintptr_t(0x5000));
  FakeGraphs::begin(stream);
  CHECK(reach(f.gemm(&config, stream)) == JITGEMM_STATUS_NOT_CAPTURABLE);
  FakeGraphs::destroy(FakeGraphs::end(stream));
  f.driver = FakeGpu::api();
  f.problem.k = 72;
  f.driver.module_load_data = [](CUmodule*, const void*) { return CUDA_ERROR_NO_BINARY_FOR_GPU; };
  config.stages = 4;
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_LOAD_FAILED);
  f.driver = FakeGpu::api();
  f.nvrtc.compile_program = [](nvrtcProgram, int, const char* const*) { return NVRTC_ERROR_COMPILATION; };
  config.stages = 5;
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_COMPILE_FAILED);
  CHECK_THAT(jitgemm_last_error_log(), ContainsSubstring("made_to_fail"));
  f.nvrtc = FakeNvrtc::api();
  f.problem.k = 64;
  f.driver.tensor_map_encode_tiled = [](CUtensorMap*, auto...) { return CUDA_ERROR_INVALID_VALUE; };
  config = split_config();
  config.main_loop = JITGEMM_MAIN_LOOP_SM90;
  config.block_m = 64, config.block_k = 64, config.splits = 1;
  config.schedule = JITGEMM_DATA_PARALLEL;
  CHECK(reach(f.gemm(&config)) == JITGEMM_STATUS_INTERNAL);
  f.driver = FakeGpu::api();
  f.driver.device_get_count = [](int* count) { return *count = 0, CUDA_SUCCESS; };
  CHECK(reach(f.begin()) == JITGEMM_STATUS_NO_DEVICE);
  f.driver = FakeGpu::api();

  // Of the emulator, the options and files.
  f.options.device = JITGEMM_DEVICE_EMULATOR;
  f.options.emulator_sm_count = 0;
  CHECK(reach(f.begin()) == JITGEMM_STATUS_INVALID_OPTION);
  f.options.emulator_sm_count = 4;
  f.options.emulator_seed = 1;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  {
    const ScopedEnvironment compiler("JITGEMM_CXX", "/nowhere/c++");
    CHECK(reach(f.gemm()) == JITGEMM_STATUS_NO_COMPILER);
  }
  {
    const ScopedEnvironment nowhere("TMPDIR", "/nowhere");
    CHECK(reach(f.gemm()) == JITGEMM_STATUS_IO);
    CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("/nowhere"));
  }
  {
    const TemporaryDirectory templates;
    write_broken_templates(templates.path());
    const ScopedEnvironment folder("JITGEMM_TEMPLATES_DIR", templates.path().c_str());
    CHECK(reach(f.gemm()) == JITGEMM_STATUS_EMULATOR_FAULT);
    CHECK_THAT(jitgemm_last_error_log(), ContainsSubstring("block"));
  }

  const auto stops = [](void*, std::int32_t, std::int32_t) { return 3; };
  f.options.device = JITGEMM_DEVICE_CUDA;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  CHECK(reach(jitgemm_tune(f.context, &f.problem, stops, nullptr, nullptr)) == JITGEMM_STATUS_INTERRUPTED);

  // Of ranks that multiply together, test_tensor_parallel*.cpp.
  reached.insert({JITGEMM_STATUS_PEER_LOST, JITGEMM_STATUS_COMMUNICATOR_FAILED});
  for (std::int32_t status = 0; status < 1024; ++status) {
    INFO(status);
    CHECK(reached.contains(jitgemm_status(status)) == (jitgemm_status_name(status) != std::string("unknown")));
  }
}

TEST_CASE("Each thread has its own last error, which successes leave alone", "[c]") {
  CHECK(jitgemm_config_parse("sm80 1x", nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  const std::string mine = jitgemm_last_error_message();
  std::barrier both(2);
  std::string theirs[2];
  const auto fail = [&](int i) {
    CHECK(jitgemm_last_error_status() == JITGEMM_STATUS_SUCCESS);  // of a new thread
    CHECK(jitgemm_last_error_message() == std::string());
    CHECK(jitgemm_last_error_log() == std::string());
    both.arrive_and_wait();
    auto problem = made_by<jitgemm_problem>(jitgemm_problem_init);
    for (int round = 0; round < 100; ++round)
      jitgemm_problem_parse(("m=1 word" + std::to_string(i) + "=2").c_str(), &problem);
    both.arrive_and_wait();
    theirs[i] = jitgemm_last_error_message();
    CHECK(jitgemm_problem_parse("m=1 n=1 k=1", &problem) == JITGEMM_STATUS_SUCCESS);
    CHECK(jitgemm_last_error_status() == JITGEMM_STATUS_INVALID_PROBLEM);
    CHECK(jitgemm_last_error_message() == theirs[i]);
  };
  std::thread one([&] { fail(0); }), other([&] { fail(1); });
  one.join();
  other.join();
  CHECK_THAT(theirs[0], ContainsSubstring("word0"));
  CHECK_THAT(theirs[1], ContainsSubstring("word1"));
  CHECK(jitgemm_last_error_message() == mine);
}

TEST_CASE("A plan made by way of C says what C++ says, and runs what C++ runs", "[c]") {
  const TemporaryDirectory cache;
  const Problem problem{.m = 48, .n = 40, .k = 72};
  Context context(emulator_options(cache));
  const CContext c_context(emulator_options(cache));
  HostOperands host(problem);
  for (const bool pins : {false, true}) {
    KernelConfig config = context.plan(problem).config;
    config.schedule = Schedule::persistent, config.grid = 2;
    const Plan expected = pins ? context.compile(problem, config) : context.compile(problem);
    const CPlan plan(c_context, problem, pins ? &config : nullptr);
    REQUIRE(jitgemm_plan_update(plan) == JITGEMM_STATUS_SUCCESS);
    const auto line = [&](auto get) {
      return line_of([&](char* b, std::size_t c, std::size_t* n) { return get(plan, b, c, n); });
    };
    REQUIRE(jitgemm_plan_compile(plan) == JITGEMM_STATUS_SUCCESS);
    CHECK(line(jitgemm_plan_explain) == expected.explain());
    CHECK(line(jitgemm_plan_json) == expected.json());
    CHECK(line(jitgemm_plan_why) == expected.why);
    CHECK(line(jitgemm_plan_rates) == expected.rates);
    CHECK(line(jitgemm_plan_device) == expected.device);
    auto c_problem = made_by<jitgemm_problem>(jitgemm_problem_init);
    auto c_config = made_by<jitgemm_config>(jitgemm_config_init);
    auto info = made_by<jitgemm_plan_info>(jitgemm_plan_info_init);
    auto time = made_by<jitgemm_predicted_time>(jitgemm_predicted_time_init);
    REQUIRE(jitgemm_plan_get_problem(plan, &c_problem) == JITGEMM_STATUS_SUCCESS);
    REQUIRE(jitgemm_plan_get_config(plan, &c_config) == JITGEMM_STATUS_SUCCESS);
    REQUIRE(jitgemm_plan_get_info(plan, &info) == JITGEMM_STATUS_SUCCESS);
    REQUIRE(jitgemm_plan_get_predicted_time(plan, &time) == JITGEMM_STATUS_SUCCESS);
    CHECK(to_string(c::problem_of(&c_problem)) == to_string(expected.problem));
    CHECK(c_problem.a.ld == 72);
    CHECK(c::config_of(&c_config) == expected.config);
    CHECK(info.source == int(expected.source));
    CHECK(info.registers == expected.registers);
    CHECK(info.threads == expected.threads);
    CHECK(time.us == expected.predicted.us);

    const std::string source = pins ? context.source(problem, config) : context.source(problem);
    CHECK(line(jitgemm_plan_source) == source);
    const std::string binary = pins ? context.binary(problem, config) : context.binary(problem);
    CHECK(text_of([&](char* b, std::size_t c, std::size_t* n) { return jitgemm_plan_binary(plan, b, c, n); }) ==
          binary);
    std::size_t kernels = 0;
    REQUIRE(jitgemm_plan_kernel_count(plan, &kernels) == JITGEMM_STATUS_SUCCESS);
    const std::vector<KernelText> sources = context.sources(problem, config),
                                  binaries = context.binaries(problem, config);
    REQUIRE(kernels == sources.size());
    for (std::size_t i = 0; pins && i < kernels; ++i) {
      const auto of = [&](auto get) {
        return line_of([&](char* b, std::size_t c, std::size_t* n) { return get(plan, i, b, c, n); });
      };
      CHECK(of(jitgemm_plan_kernel_name) == sources[i].name);
      CHECK(of(jitgemm_plan_kernel_entry) == sources[i].entry);
      CHECK(of(jitgemm_plan_kernel_source) == sources[i].text);
      CHECK(text_of([&](char* b, std::size_t c, std::size_t* n) {
              return jitgemm_plan_kernel_binary(plan, i, b, c, n);
            }) == binaries[i].text);
    }

    host.poison();
    const jitgemm_operands operands = c::to_c(host.operands);
    REQUIRE(jitgemm_plan_run(plan, &operands, nullptr) == JITGEMM_STATUS_SUCCESS);
    CHECK(host.violation(MainLoop(0)) == "");
  }
  CHECK(c_context.counters().launches == 2);
  CHECK(c_context.counters().compiles == 0);  // the C++ Context's are on disk
  CHECK(c_context.device().emulated == 1);
  CHECK(c_context.device().name == context.device().name);
}

TEST_CASE("A plan asks for its binaries once, whoever queries and fetches", "[c]") {
  Fixture f;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  static int compiles;
  compiles = 0;
  f.nvrtc.compile_program = [](nvrtcProgram program, int count, const char* const* options) {
    return ++compiles, FakeNvrtc::api().compile_program(program, count, options);
  };
  f.options.cache_dir = "/dev/null/nowhere";  // so that nothing but the plan can keep it
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  jitgemm_plan* plan = nullptr;
  REQUIRE(jitgemm_plan_create(f.context, &f.problem, nullptr, &plan) == JITGEMM_STATUS_SUCCESS);
  CHECK(compiles == 0);
  std::size_t needed = 0;
  for (int i = 0; i < 3; ++i) REQUIRE(jitgemm_plan_binary(plan, nullptr, 0, &needed) == JITGEMM_STATUS_SUCCESS);
  CHECK(needed > 0);
  CHECK(compiles == 1);
  jitgemm_plan_destroy(plan);
}

TEST_CASE("A plan outlives its context, and both go without leaving anything", "[c]") {
  Fixture f;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  jitgemm_plan *plan = nullptr, *candidate = nullptr;
  jitgemm_candidates* candidates = nullptr;
  REQUIRE(jitgemm_plan_create(f.context, &f.problem, nullptr, &plan) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_candidates_create(f.context, &f.problem, &candidates) == JITGEMM_STATUS_SUCCESS);
  f.end();
  CHECK(jitgemm_plan_run(plan, &f.operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  jitgemm_plan_destroy(plan);
  std::size_t count = 0;
  REQUIRE(jitgemm_candidates_count(candidates, &count) == JITGEMM_STATUS_SUCCESS);
  CHECK(count > 1);
  REQUIRE(jitgemm_candidates_plan(candidates, count - 1, &candidate) == JITGEMM_STATUS_SUCCESS);
  jitgemm_candidates_destroy(candidates);
  auto config = made_by<jitgemm_config>(jitgemm_config_init);
  REQUIRE(jitgemm_plan_get_config(candidate, &config) == JITGEMM_STATUS_SUCCESS);
  FakeGpu::log.clear();
  CHECK(jitgemm_plan_run(candidate, &f.operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_plan_update(candidate) == JITGEMM_STATUS_SUCCESS);
  auto info = made_by<jitgemm_plan_info>(jitgemm_plan_info_init);
  auto same = made_by<jitgemm_config>(jitgemm_config_init);
  REQUIRE(jitgemm_plan_get_info(candidate, &info) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_plan_get_config(candidate, &same) == JITGEMM_STATUS_SUCCESS);
  CHECK(info.source == JITGEMM_CHOICE_PINNED);
  CHECK(c::config_of(&same) == c::config_of(&config));
  CHECK(FakeGpu::retained == 1);
  jitgemm_plan_destroy(candidate);
  CHECK(FakeGpu::retained == 0);
  CHECK(FakeGpu::alive.empty());
}

TEST_CASE("Threads share a plan while others update it", "[c]") {
  Fixture f;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  jitgemm_plan* plan = nullptr;
  REQUIRE(jitgemm_plan_create(f.context, &f.problem, nullptr, &plan) == JITGEMM_STATUS_SUCCESS);
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      std::vector<char> memory(1 << 20);
      FakeGpu::current = nullptr;
      for (int round = 0; round < 20; ++round) {
        std::size_t n = 0;
        jitgemm_status status = JITGEMM_STATUS_SUCCESS;
        if (i < 2) status = jitgemm_plan_run(plan, &f.operands, nullptr);
        if (i == 2) status = jitgemm_plan_update(plan);
        if (i == 3) status = jitgemm_plan_compile(plan);
        if (i == 4) status = jitgemm_plan_explain(plan, memory.data(), memory.size(), &n);
        if (i == 5) status = jitgemm_plan_binary(plan, memory.data(), memory.size(), &n);
        failures += status != JITGEMM_STATUS_SUCCESS;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(f.launches() == 40);
  jitgemm_plan_destroy(plan);
}

namespace {

/// What a callback is to do, and saw.
struct Told {
  int answer = 0, calls = 0;
  bool throws = false, serves = true;
  jitgemm_problem problem{};
  jitgemm_operands operands{};
  jitgemm_stream stream = nullptr;
  std::int32_t done = -1, total = -1;
};

int fall_back(void* user, const jitgemm_problem* problem, const jitgemm_operands* operands, jitgemm_stream stream,
              std::int32_t* served) {
  Told& told = *static_cast<Told*>(user);
  ++told.calls;
  told.problem = *problem, told.operands = *operands, told.stream = stream;
  CHECK(*served == 0);
  if (told.throws) throw std::runtime_error("a callback of C++");
  *served = told.serves;
  return told.answer;
}

int on_progress(void* user, std::int32_t done, std::int32_t total) {
  Told& told = *static_cast<Told*>(user);
  ++told.calls;
  told.done = done, told.total = total;
  if (told.throws) throw 7;  // no std::exception
  return told.answer;
}

int on_any_progress(void* user, const jitgemm_problem* problem, std::int32_t done, std::int32_t total) {
  static_cast<Told*>(user)->problem = *problem;
  return on_progress(user, done, total);
}

}  // namespace

TEST_CASE("A fallback in C serves, declines, stops the call or throws", "[c]") {
  Fixture f;
  Told told;
  f.options.compile_in_background = 1;
  f.options.fallback = fall_back;
  f.options.fallback_user = &told;
  const auto stream = reinterpret_cast<jitgemm_stream>(std::uintptr_t(0x40));
  const auto first_call = [&] {
    REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
    return f.gemm(nullptr, stream);
  };
  CHECK(first_call() == JITGEMM_STATUS_SUCCESS);
  CHECK(told.calls == 1);
  CHECK(told.stream == stream);
  CHECK(told.problem.size == sizeof told.problem);
  CHECK(told.problem.m == 64);
  CHECK(struct_bytes(told.operands) == struct_bytes(f.operands));
  CHECK(f.launches() == 0);

  told.serves = false;
  f.problem.epilogue.activation = JITGEMM_RELU;  // another kernel
  CHECK(first_call() == JITGEMM_STATUS_SUCCESS);
  CHECK(f.launches() == 1);

  told.answer = -4;
  f.problem.epilogue.activation = JITGEMM_SILU;
  CHECK(first_call() == JITGEMM_STATUS_INTERRUPTED);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("the fallback callback returned -4"));
  told.throws = true;
  f.problem.epilogue.activation = JITGEMM_GELU_ERF;
  CHECK(first_call() == JITGEMM_STATUS_INTERRUPTED);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("threw an exception: a callback of C++"));
}

TEST_CASE("A progress callback in C sees a measurement, and ends it", "[c]") {
  Fixture f;
  Told told, told_by_options;
  f.options.tuning = JITGEMM_TUNING_ON;
  f.options.tuning_budget_seconds = 60;
  f.options.progress = on_any_progress;
  f.options.progress_user = &told_by_options;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);

  f.problem.m = f.problem.n = 16;
  CHECK(f.gemm() == JITGEMM_STATUS_SUCCESS);  // the first call measures
  CHECK(told_by_options.calls > 1);
  CHECK(told_by_options.problem.m == 16);
  CHECK(told_by_options.done == told_by_options.total);

  for (Told* stopper : {&told, &told_by_options}) {
    for (const bool throws : {false, true}) {
      stopper->answer = throws ? 0 : 9;
      stopper->throws = throws;
      f.problem.k = 80 + (stopper == &told) * 16 + throws * 32;
      jitgemm_tune_report* report = nullptr;
      CHECK(jitgemm_tune(f.context, &f.problem, on_progress, &told, &report) == JITGEMM_STATUS_INTERRUPTED);
      CHECK_THAT(jitgemm_last_error_message(),
                 ContainsSubstring(throws ? "callback threw an exception" : "callback returned 9"));
      CHECK(report == nullptr);
      if (stopper == &told_by_options) CHECK(f.gemm() == JITGEMM_STATUS_INTERRUPTED);
      stopper->answer = 0;
      stopper->throws = false;
      CHECK(f.gemm() == JITGEMM_STATUS_SUCCESS);
    }
  }

  jitgemm_tune_report* report = nullptr;
  REQUIRE(jitgemm_tune(f.context, &f.problem, on_progress, &told, &report) == JITGEMM_STATUS_SUCCESS);
  CHECK(told.done == told.total);
  double seconds = 0;
  std::size_t count = 0;
  REQUIRE(jitgemm_tune_report_seconds(report, &seconds) == JITGEMM_STATUS_SUCCESS);
  CHECK(seconds > 0);
  REQUIRE(jitgemm_tune_report_count(report, &count) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(count > 1);
  int measured = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto config = made_by<jitgemm_config>(jitgemm_config_init);
    auto candidate = made_by<jitgemm_tuned_candidate>(jitgemm_tuned_candidate_init);
    REQUIRE(jitgemm_tune_report_candidate(report, i, &config, &candidate) == JITGEMM_STATUS_SUCCESS);
    const std::string skipped = line_of(
        [&](char* b, std::size_t c, std::size_t* n) { return jitgemm_tune_report_skipped(report, i, b, c, n); });
    CHECK(candidate.predicted_us > 0);
    CHECK(skipped.empty() == (candidate.measured_us > 0));
    measured += skipped.empty();
  }
  CHECK(measured > 1);
  CHECK(jitgemm_tune_report_candidate(report, count, nullptr, nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  char text[8];
  CHECK(jitgemm_tune_report_skipped(report, count, text, sizeof text, nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  jitgemm_plan* plan = nullptr;
  REQUIRE(jitgemm_tune_report_plan(report, &plan) == JITGEMM_STATUS_SUCCESS);
  jitgemm_tune_report_destroy(report);
  auto info = made_by<jitgemm_plan_info>(jitgemm_plan_info_init);
  REQUIRE(jitgemm_plan_get_info(plan, &info) == JITGEMM_STATUS_SUCCESS);
  CHECK(info.source == JITGEMM_CHOICE_MEASURED);
  CHECK(info.measured_us > 0);
  REQUIRE(info.runner_up_count > 0);
  auto runner_up = made_by<jitgemm_config>(jitgemm_config_init), winner = runner_up;
  double median_us = 0;
  REQUIRE(jitgemm_plan_get_runner_up(plan, 0, &runner_up, &median_us) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_plan_get_config(plan, &winner) == JITGEMM_STATUS_SUCCESS);
  CHECK(median_us > 0);
  CHECK(!(c::config_of(&runner_up) == c::config_of(&winner)));
  CHECK(jitgemm_plan_run(plan, &f.operands, nullptr) == JITGEMM_STATUS_SUCCESS);
  jitgemm_plan_destroy(plan);
}

TEST_CASE("Options in C are the Context's, and devices are listed", "[c]") {
  Fixture f;
  std::size_t count = 0;
  REQUIRE(jitgemm_cuda_device_count(&count) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(count == cuda_devices().size());
  auto device = made_by<jitgemm_device>(jitgemm_device_init);
  REQUIRE(jitgemm_cuda_device(count - 1, &device) == JITGEMM_STATUS_SUCCESS);
  CHECK(device.architecture == cuda_devices().back().architecture);
  CHECK(jitgemm_cuda_device(count, &device) == JITGEMM_STATUS_INVALID_ARGUMENT);
  CHECK(jitgemm_cuda_device(SIZE_MAX, &device) == JITGEMM_STATUS_INVALID_ARGUMENT);

  jitgemm_options options = f.options;
  options.device = JITGEMM_DEVICE_COMPILE_ONLY;
  options.cuda_device = 1;
  options.architecture = "sm_89";
  options.tuning = JITGEMM_TUNING_CACHED;
  options.tuning_budget_seconds = 2, options.tuning_total_budget_seconds = 3;
  options.constraints.batch_invariant = 4, options.constraints.workspace_bytes = 5, options.constraints.sms = 6;
  options.workspace_bound_bytes = 7;
  options.bucket_m = 8, options.dependent_launch = 0, options.compile_in_background = 9;
  options.emulator_seed = 10, options.emulator_sm_count = 11, options.at_hand_within = 1.5;
  const ContextOptions same = c::options_of(&options);
  CHECK(same.device == Device::compile_only);
  CHECK(same.cuda_device == 1);
  CHECK(same.architecture == "sm_89");
  CHECK(same.tuning == Tuning::cached);
  CHECK((same.tuning_budget_seconds == 2 && same.tuning_total_budget_seconds == 3));
  CHECK(same.constraints == Constraints{.batch_invariant = true, .workspace_bytes = 5, .sms = 6});
  CHECK(same.workspace_bound_bytes == 7);
  CHECK((same.bucket_m && !same.dependent_launch && same.compile_in_background));
  CHECK(same.cache_dir == f.options.cache_dir);
  CHECK((same.emulator_seed == 10 && same.emulator_sm_count == 11 && same.at_hand_within == 1.5));
  CHECK(c::to_c(same).at_hand_within == 1.5);
  CHECK((!same.fallback && !same.progress));
  const jitgemm_options back = c::to_c(same);
  CHECK((back.cuda_device == 1 && back.tuning == JITGEMM_TUNING_CACHED && back.workspace_bound_bytes == 7));
  CHECK((back.constraints.batch_invariant == 1 && back.constraints.workspace_bytes == 5 && back.constraints.sms == 6));
  CHECK((back.bucket_m == 1 && back.dependent_launch == 0 && back.compile_in_background == 1));
  CHECK((back.tuning_budget_seconds == 2 && back.tuning_total_budget_seconds == 3 && back.emulator_seed == 10));
  options = made_by<jitgemm_options>(jitgemm_options_init);
  CHECK_FALSE(c::options_of(&options).tuning);
  CHECK_FALSE(c::options_of(&options).cache_dir);
}

TEST_CASE("workspace_size, trim and counters by way of C", "[c]") {
  Fixture f;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  const jitgemm_config config = split_config();
  std::size_t bytes = 0, chosen = 99;
  REQUIRE(jitgemm_workspace_size(f.context, &f.problem, &config, &bytes) == JITGEMM_STATUS_SUCCESS);
  CHECK(bytes > 0);
  REQUIRE(jitgemm_workspace_size(f.context, &f.problem, nullptr, &chosen) == JITGEMM_STATUS_SUCCESS);
  CHECK(chosen != 99);
  REQUIRE(f.gemm(&config) == JITGEMM_STATUS_SUCCESS);
  auto counters = made_by<jitgemm_counters>(jitgemm_counters_init);
  REQUIRE(jitgemm_get_counters(f.context, &counters) == JITGEMM_STATUS_SUCCESS);
  CHECK(counters.launches == 1);
  CHECK(counters.compiles == 1);
  CHECK(counters.workspace_bytes >= bytes);
  REQUIRE(jitgemm_trim(f.context) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_get_counters(f.context, &counters) == JITGEMM_STATUS_SUCCESS);
  CHECK(counters.workspace_bytes == 0);
}
