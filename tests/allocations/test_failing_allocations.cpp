// Where operator new fails, at each call in turn, every function ends in an Error or does what it is for; nothing ends
// the process, and what was half done stands in nobody's way.
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "allocations/counted_new.hpp"
#include "c_context.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "core/out_of_memory.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sample_configs.hpp"
#include "sandbox.hpp"
#include "wisdom_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr Problem problem{.m = 5, .n = 6, .k = 70};
const Stream stream = reinterpret_cast<Stream>(std::uintptr_t(0x40));

KernelConfig small(Schedule schedule, int grid) {
  KernelConfig config = parse_kernel_config("sm80 32x32x64 group_m=0 stages=2 warps=2 schedule=data_parallel");
  config.schedule = schedule;
  config.grid = grid;
  return config;
}
const KernelConfig tuned = small(Schedule::data_parallel, 0), stream_k = small(Schedule::stream_k, 2);

/// A cache that has the kernels, and a database with several records of the problem.
class Fixture {
 public:
  Fixture() {
    make();
    TuningDb db(cache_.path() / tuning_db_name);
    DeviceInfo device = device_info_for("sm_90a");
    device.emulated = true;
    device.sm_count = context->device().sm_count;
    for (const char* name : {"emulator", "another", "a third"}) {
      device.name = name;
      TuningRecord record = record_of(shape_of(normalise(problem)), 0, device);
      record.config = tuned;
      db.add(record);
    }
    make();
    REQUIRE(context->plan(problem).source == PlanSource::exact);
    context->warm(problem);
    context->compile(problem, stream_k);
    make();
  }

  void make() { context.emplace(options_); }
  void gemm() { context->gemm(problem, host.operands, stream); }
  void gemm_with_workspace() { context->gemm(problem, host.operands, stream, stream_k); }
  /// Whether the Context, and the stream, are as good as before, and all that is on disk.
  void require_sound() {
    if (!context) make();
    for (const auto call : {&Fixture::gemm_with_workspace, &Fixture::gemm}) {
      host.poison();
      (this->*call)();
      REQUIRE(host.violation(MainLoop::sm80) == "");
    }
    REQUIRE(context->plan(problem).source == PlanSource::exact);
    context->trim();
    REQUIRE(context->counters().compiles == 0);
    REQUIRE(context->counters().rebuilt == 0);
  }

  const ContextOptions& options() const { return options_; }

  std::optional<Context> context;
  HostOperands host{problem};

 private:
  const TemporaryDirectory cache_;
  const ContextOptions options_ = emulator_options(cache_, Tuning::cached);
};

/// Calls it with each of its allocations failing, and with each seventh and all that come after it, until none is left
/// that could. Returns how many there were.
long fail_each(const std::function<void()>& prepare, const std::function<void()>& call,
               const std::function<void()>& after) {
  long count = 0;
  for (const bool and_later : {false, true}) {
    for (long n = 0;; n += and_later ? 7 : 1) {
      INFO("allocation " << n << (and_later ? " and all later ones" : "") << " fails");
      if (prepare) prepare();
      std::optional<ErrorCode> code;
      bool escaped = false;
      {
        const FailingAllocation failing(n, and_later);
        try {
          call();
        } catch (const Error& error) {
          code = error.code();
        } catch (...) {
          escaped = true;
        }
      }
      const bool failed = FailingAllocation::failed();
      REQUIRE_FALSE(escaped);  // as std::bad_alloc, say
      REQUIRE(code.value_or(ErrorCode::out_of_memory) == ErrorCode::out_of_memory);
      REQUIRE((failed || !code));
      after();
      if (!failed) break;
      count = std::max(count, n + 1);
    }
  }
  return count;
}

}  // namespace

TEST_CASE("A function of a Context that finds no memory says so, and the next call is right",
          "[allocations][context]") {
  Fixture f;
  struct Case {
    const char* what;
    std::function<void()> call, before = {};
  };
  const auto fresh = [&] { f.make(); };
  Plan plan;
  const std::vector<Case> cases{
      {"Context()", fresh, [&] { f.context.reset(); }},
      {"first gemm()", [&] { f.gemm(); }, fresh},
      {"first gemm() with a workspace", [&] { f.gemm_with_workspace(); }, fresh},
      {"warm gemm() with a workspace", [&] { f.gemm_with_workspace(); }},
      {"warm gemm()", [&] { f.gemm(); }},
      {"plan()", [&] { f.context->plan(problem); }, fresh},
      {"explain()", [&] { plan.explain(); }, [&] { plan = f.context->plan(problem); }},
      {"json()", [&] { plan.json(); }},
      {"source()", [&] { f.context->sources(problem); }},
      {"binary()", [&] { f.context->binary(problem); }},
      {"workspace_size()", [&] { f.context->workspace_size(problem, stream_k); }},
      {"candidates()", [&] { f.context->candidates(problem); }},
      {"device(), counters() and trim()",
       [&] {
         f.context->device();
         f.context->counters();
         f.context->trim();
       },
       [&] { f.gemm_with_workspace(); }},
  };
  f.require_sound();
  for (const Case& one : cases) {
    INFO(one.what);
    CHECK(fail_each(one.before, one.call, [&] { f.require_sound(); }) > 0);
  }
}

TEST_CASE("A refusal and a text that find no memory say so", "[allocations]") {
  Fixture f;
  const auto refused = [&](const auto& call, ErrorCode code) {
    try {
      call();
    } catch (const Error& error) {
      if (error.code() != code) throw;
    }
  };
  const std::vector<std::function<void()>> calls{
      [&] { refused([&] { f.context->gemm({.m = -1}, f.host.operands); }, ErrorCode::invalid_problem); },
      [&] { refused([] { parse_problem("m=1 n=1 k=1 shape=none"); }, ErrorCode::invalid_problem); },
      [&] { refused([] { parse_kernel_config("sm80 32x32x64 colour=none"); }, ErrorCode::invalid_config); },
      [&] { refused([] { Context({.device = Device::compile_only}); }, ErrorCode::invalid_option); },
      [] { to_string(parse_problem("m=17 n=33 k=65 a=e4m3 b=e5m2 alpha=0.5 beta=2 activation=leaky_relu slope=0.1")); },
      [] { to_string(parse_kernel_config(to_string(stream_k))); },
      [] { to_string(ErrorCode::workspace_too_small); },
      [] { cuda_devices(); },
  };
  for (const auto& call : calls) CHECK(fail_each({}, call, [] {}) > 0);
}

TEST_CASE("A C function that finds no memory says so, in the library's words", "[allocations][c]") {
  Fixture f;
  const CContext context(f.options());
  const CPlan plan(context, problem, nullptr);
  const jitgemm_problem asked = c::to_c(problem);
  const jitgemm_config config = c::to_c(stream_k);
  const jitgemm_operands operands = c::to_c(f.host.operands);
  jitgemm_problem wrong = asked;
  wrong.m = -1;
  std::size_t n = 0;
  std::vector<char> memory(1 << 20);
  jitgemm_options options = c::to_c(f.options());
  const std::string cache_dir = *f.options().cache_dir;
  options.cache_dir = cache_dir.c_str();
  const std::vector<std::function<jitgemm_status()>> calls{
      [&] {
        jitgemm_context* made = nullptr;
        const jitgemm_status status = jitgemm_context_create(&options, &made);
        CHECK((made != nullptr) == (status == JITGEMM_STATUS_SUCCESS));
        jitgemm_context_destroy(made);
        return status;
      },
      [&] {
        jitgemm_plan* made = nullptr;
        const jitgemm_status status = jitgemm_plan_create(context, &asked, &config, &made);
        CHECK((made != nullptr) == (status == JITGEMM_STATUS_SUCCESS));
        jitgemm_plan_destroy(made);
        return status;
      },
      [&] { return jitgemm_plan_update(plan); },
      [&] { return jitgemm_plan_explain(plan, memory.data(), memory.size(), &n); },
      [&] { return jitgemm_plan_json(plan, memory.data(), memory.size(), &n); },
      [&] {
        const jitgemm_status status = jitgemm_plan_update(plan);  // forgets the source
        return status ? status : jitgemm_plan_source(plan, memory.data(), memory.size(), &n);
      },
      [&] { return jitgemm_problem_to_string(&asked, memory.data(), memory.size(), &n); },
      [&] { return jitgemm_workspace_size(context, &asked, &config, &n); },
      [&] {
        jitgemm_candidates* made = nullptr;
        const jitgemm_status status = jitgemm_candidates_create(context, &asked, &made);
        jitgemm_candidates_destroy(made);
        return status;
      },
      // What is wrong anyway: its words may find no memory, and nor may those of the last error.
      [&] { return jitgemm_gemm(context, &wrong, nullptr, &operands, nullptr); },
      [&] { return jitgemm_problem_parse("m=1 n=1 k=1 shape=none", &wrong); },
      [&] { return jitgemm_plan_run(nullptr, &operands, nullptr); },
  };
  for (const auto& call : calls) {
    std::optional<jitgemm_status> usual;
    {
      const jitgemm_status status = call();
      if (status != JITGEMM_STATUS_SUCCESS) usual = status;
    }
    const auto of_this_thread = [&] {
      const jitgemm_status status = call();
      if (status == JITGEMM_STATUS_SUCCESS || status == usual) return;
      if (status != JITGEMM_STATUS_OUT_OF_MEMORY || jitgemm_last_error_status() != status ||
          std::strcmp(jitgemm_last_error_message(), out_of_memory_error().what()) != 0)
        throw 0;
      throw_out_of_memory();
    };
    CHECK(fail_each({}, of_this_thread, [] {}) > 0);
  }

  // Of a thread that has no last error yet, and finds no memory for one.
  std::string seen;
  std::thread([&] {
    seen.reserve(1000);
    jitgemm_status status = JITGEMM_STATUS_SUCCESS;
    {
      const FailingAllocation failing(0, true);
      status = jitgemm_plan_run(nullptr, &operands, nullptr);
    }
    seen = jitgemm_status_name(status) + std::string(": ") + jitgemm_last_error_message();
  }).join();
  CHECK(seen == std::string("out_of_memory: ") + out_of_memory_error().what());
}

TEST_CASE("A tuning database that finds no memory loses no record", "[allocations][tuning]") {
  std::optional<TemporaryDirectory> directory;
  std::optional<TuningDb> db;
  const auto prepare = [&] {
    db.reset();
    directory.emplace();
    db.emplace(directory->path() / tuning_db_name);
    db->add(record_of(shape(64, 64, 64)));
  };
  bool added = false;
  const auto add = [&] {
    added = false;
    with_memory_errors([&] { db->add(record_of(shape(128, 64, 64))); });
    added = true;
  };
  const auto after = [&] {
    const bool must_be_there = added;
    db->add(record_of(shape(256, 64, 64)));
    std::size_t in_file = TuningDb(directory->path() / tuning_db_name).records().size();
    REQUIRE(db->records().size() == in_file);
    REQUIRE(in_file >= (must_be_there ? 3 : 2));
    REQUIRE(db->find(shape(64, 64, 64), h200).match == Match::exact);
    REQUIRE(db->find(shape(256, 64, 64), h200).match == Match::exact);
  };
  CHECK(fail_each(prepare, add, after) > 0);
}

TEST_CASE("A cache and wisdom that find no memory say so, and lose nothing", "[allocations][cache][wisdom]") {
  const ScopedEnvironment no_system("JITGEMM_SYSTEM_CACHE_DIR", nullptr);
  const TemporaryDirectory root;
  const auto path = [&](const char* name) { return (root.path() / name).string(); };
  sample_wisdom(root.path());
  const std::optional<std::string> directory = path("sample"), into = path("into");
  const std::string file = path("sample.wisdom"), copy = path("copy.wisdom"), folder = path("folder");
  const std::vector<std::string> files{file};
  const WisdomSelection selection{.cache_dir = directory};
  const WisdomImportOptions import{.kernels = true, .cache_dir = into};
  Cache cache(directory);
  const TuningResult result = cache.tuning_results().at(0);

  const auto is_whole = [](const Cache& cache) {
    const std::vector<CachedKernel> kernels = cache.verify();
    return kernels.size() == 2 && kernels[0].fault.empty() && kernels[1].fault.empty() &&
           cache.tuning_results().size() == 2;
  };
  const std::vector<std::function<void()>> calls{
      [&] { Cache{directory}; },
      [&] { cache.directory(); },
      [&] { cache.kernels(); },
      [&] { cache.verify(); },
      [&] { cache.prune(); },
      [&] { cache.export_kernels(folder); },
      [&] { cache.export_binaries(folder); },
      [&] { cache.tuning_results(); },
      [&] { result.json(); },
      [&] { cached_wisdom(selection); },
      [&] { export_wisdom(copy, selection); },
      [&] { read_wisdom(file); },
      [&] { merge_wisdom(copy, files); },
      [&] { diff_wisdom(file, file); },
  };
  for (const auto& call : calls) CHECK(fail_each({}, call, [&] { REQUIRE(is_whole(cache)); }) > 0);
  CHECK(fail_each([&] { std::filesystem::remove_all(*into); }, [&] { import_wisdom(files, import); },
                  [&] {
                    import_wisdom(files, import);  // goes on from there
                    REQUIRE(is_whole(Cache(into)));
                  }) > 0);
}
