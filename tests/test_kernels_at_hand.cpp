// Choices from kernels at hand (ContextOptions::at_hand_within), on the emulator.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

ContextOptions options_in(const fs::path& directory, double within) {
  ContextOptions options;
  options.device = Device::emulator;
  options.tuning = Tuning::off;
  options.cache_dir = directory.string();
  options.at_hand_within = within;
  return options;
}

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DataType type = f16) {
  return {.m = m, .n = n, .k = k, .a = {type}, .b = {type}, .d = {f32}};
}

/// Of A and B full of ones, which D says how many were added of.
bool runs_right(Context& context, const Problem& p) {
  const std::uint16_t one = p.a.type == f16 ? 0x3c00 : 0x3f80;
  const std::vector<std::uint16_t> a(std::size_t(p.m * p.k), one), b(std::size_t(p.k * p.n), one);
  std::vector<float> d(std::size_t(p.m * p.n), std::numeric_limits<float>::quiet_NaN());
  context.gemm(p, {.a = a.data(), .b = b.data(), .d = d.data()});
  return std::ranges::all_of(d, [&](float x) { return x == float(p.k); });
}

/// The last choice, not the first, of the cost model: a kernel that is no problem's best.
KernelConfig poor_choice(Context& context, const Problem& p) { return context.candidates(p).back().config; }

}  // namespace

TEST_CASE("Within the factor, kernels at hand serve new problems, and nothing is compiled", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  const Problem warmed = problem_of(64, 64, 64);
  {
    Context context(options_in(cache.path(), 0));
    context.compile(warmed, poor_choice(context, warmed));
    CHECK(context.counters().compiles == 1);
  }
  for (const double within : {1e9, HUGE_VAL}) {
    Context context(options_in(cache.path(), within));
    for (const Problem& p : {problem_of(64, 64, 64), problem_of(40, 72, 200), problem_of(200, 24, 88)}) {
      CAPTURE(to_string(p), within);
      const Plan plan = context.plan(p);
      CHECK(runs_right(context, p));
      CHECK_THAT(plan.why, ContainsSubstring("of the kernels at hand; expected to take") &&
                               ContainsSubstring(" times as long as sm"));
    }
    CHECK(context.counters().compiles == 0);
  }
  Context bounded(options_in(cache.path(), 1));
  const Problem p = problem_of(40, 72, 200);
  CHECK_THAT(bounded.plan(p).why, !ContainsSubstring("at hand"));
  CHECK(runs_right(bounded, p));
  CHECK(bounded.counters().compiles == 1);
  CHECK(runs_right(bounded, p));
  CHECK(bounded.counters().compiles == 1);
}

TEST_CASE("What is loaded is at hand, too, and what another thread asks for meanwhile", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  Context context(options_in(cache.path(), HUGE_VAL));
  CHECK(runs_right(context, problem_of(64, 64, 64)));  // nothing is at hand
  CHECK(context.counters().compiles == 1);
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back(
        [&, i] { right[std::size_t(i)] = runs_right(context, problem_of(32 + 8 * i, 48, 64 + 8 * i)); });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == std::vector{1, 1, 1, 1});
  CHECK(context.counters().compiles == 1);
}

TEST_CASE("A kernel serves its own types and layouts alone", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  Context context(options_in(cache.path(), HUGE_VAL));
  context.warm(problem_of(64, 64, 64));
  CHECK(runs_right(context, problem_of(64, 64, 64, bf16)));
  CHECK(context.counters().compiles == 2);
  Problem transposed = problem_of(64, 64, 64);
  transposed.b.layout = Layout::column_major;
  CHECK(runs_right(context, transposed));
  CHECK(context.counters().compiles == 3);
  CHECK(runs_right(context, problem_of(24, 64, 128, bf16)));
  CHECK(context.counters().compiles == 3);
}

TEST_CASE("A damaged kernel is not at hand, those of the system's layer are", "[at_hand][emulator]") {
  const TemporaryDirectory system, own;
  Context(options_in(system.path(), 0)).warm(problem_of(64, 64, 64));
  {
    const ScopedEnvironment layer("JITGEMM_SYSTEM_CACHE_DIR", system.path().c_str());
    Context context(options_in(own.path(), HUGE_VAL));
    CHECK(runs_right(context, problem_of(40, 72, 200)));
    CHECK(context.counters().compiles == 0);
  }
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(system.path()))
    if (file.is_regular_file() && file.file_size() > 4096) fs::resize_file(file.path(), file.file_size() - 1);
  const CapturedLog log;
  Context context(options_in(system.path(), HUGE_VAL));
  CHECK(runs_right(context, problem_of(40, 72, 200)));
  CHECK(context.counters().compiles == 1);
}

TEST_CASE("With a bounded set nothing is measured", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  ContextOptions options = options_in(cache.path(), 2);
  options.tuning = Tuning::on;
  Context context(options);
  CHECK(runs_right(context, problem_of(64, 64, 64)));
  CHECK(context.counters().tuned == 0);
}

TEST_CASE("A workspace of the caller's that the choice does not fit gets a kernel at hand", "[at_hand][emulator]") {
  const TemporaryDirectory cache;
  const Problem p = problem_of(64, 64, 64);
  Context(options_in(cache.path(), 0)).warm(p);
  Context context(options_in(cache.path(), HUGE_VAL));
  alignas(256) static char workspace[256];
  const std::vector<std::uint16_t> ones(64 * 64, 0x3c00);
  std::vector<float> d(64 * 64);
  context.gemm(p, {.a = ones.data(), .b = ones.data(), .d = d.data(), .workspace = workspace, .workspace_bytes = 256});
  CHECK(d.back() == 64);
  CHECK(context.counters().compiles == 0);
}

TEST_CASE("A factor below 1 is refused", "[at_hand]") {
  const TemporaryDirectory cache;
  for (const double within : {-1.0, 0.5, 0.999, std::nan("")}) {
    const Error error = error_of([&] { Context context(options_in(cache.path(), within)); });
    CHECK(error.code() == ErrorCode::invalid_option);
    CHECK_THAT(error.what(), ContainsSubstring("at_hand_within=") && ContainsSubstring("give 1 or more, or 0"));
  }
}
