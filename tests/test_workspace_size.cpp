// What workspace_size() says is enough, whatever the pointers: gemm() takes no more than it is given.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/nvrtc.hpp"
#include "catch.hpp"
#include "chooser.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "errors.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "jit/kernel_store.hpp"
#include "jitgemm/jitgemm.hpp"
#include "kernels/launch_shape.hpp"
#include "random.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

struct Types {
  DataType a, b, d;
};
constexpr Types all_types[] = {{f16, f16, f16},    {f16, f16, f32},    {bf16, bf16, bf16},
                               {e4m3, e5m2, bf16}, {e4m3, e4m3, e4m3}, {tf32, tf32, f32},
                               {f32, f32, f32},    {f64, f64, f64},    {s8, s8, s32}};

void draw_alignments(Random& random, Problem& p) {
  const auto draw = [&](DataType type) { return std::max(int(size_of(type)), 1 << random.between(0, 4)); };
  p.a.alignment = draw(p.a.type);
  p.b.alignment = draw(p.b.type);
  p.c.alignment = draw(type_of_c(p));
  p.d.alignment = draw(p.d.type);
}

/// Small and deep more often than not, since that is what splits.
Problem draw(Random& random, bool has_fp8) {
  for (;;) {
    const Types types = all_types[random.next() % std::size(all_types)];
    Problem p{.a = {types.a}, .b = {types.b}, .d = {types.d}};
    const int multiple = random.between(0, 1) ? 16 : 1;
    const auto extent = [&](int high) {
      return std::int64_t((random.log_between(1, high) + multiple - 1) / multiple * multiple);
    };
    p.m = extent(random.pick(std::vector{40, 300, 3000}));
    p.n = extent(random.pick(std::vector{40, 300, 3000}));
    p.k = extent(random.pick(std::vector{40, 1000, 20000}));
    p.a.layout = random.between(0, 1) ? Layout::row_major : Layout::column_major;
    p.b.layout = random.between(0, 1) ? Layout::row_major : Layout::column_major;
    if (random.between(0, 3) == 0) p.batch = random.between(2, 5);
    if (random.between(0, 3) == 0) p.beta = 1;
    draw_alignments(random, p);
    if (!has_fp8 && is_fp8(p.a.type)) continue;
    return p;
  }
}

/// So many of JITGEMM_TEST_WORKSPACES, or a few.
int rounds() {
  const char* text = std::getenv("JITGEMM_TEST_WORKSPACES");
  return text ? std::atoi(text) : 800;
}

}  // namespace

TEST_CASE("A workspace of workspace_size() does for every choice, by the emulator's device and a GPU's",
          "[context][workspace]") {
  Random random(test_seed());
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  int limited = 0, needing = 0;
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    for (const int sms : {4, 132}) {
      const auto backend = make_emulator_backend({.architecture = architecture, .sm_count = sms});
      const TemporaryDirectory directory;
      KernelCache cache({.directory = directory.path().string()});
      KernelStore store(*backend, cache);
      ChooserOptions options;
      options.tuning = Tuning::off;
      ReadyTable ready_table;
      KernelsAtHand at_hand(*backend, store, cache, ready_table);
      Chooser chooser(*backend, store, at_hand, RatedDevice(backend->device()), options);
      // On the last device until one has been limited, which is so for one of 300 or fewer.
      const bool is_last = architecture == std::string("sm_90a") && sms == 132;
      for (int i = 0; i < rounds() / 4 || (is_last && limited == 0 && i < 50 * rounds()); ++i) {
        const NormalProblem asked = normalise(draw(random, architecture != std::string("sm_80")));
        const std::size_t bytes = launch_shape(asked, chooser.choose(asked, false).config).workspace_bytes();
        NormalProblem seen = asked;
        draw_alignments(random, seen);
        seen = normalise(seen);
        const std::size_t needed = launch_shape(seen, chooser.choose(seen, false).config).workspace_bytes();
        needing += bytes > 0;
        if (needed <= bytes) continue;
        ++limited;
        const KernelConfig fitting = chooser.choose_within(seen, bytes).config;
        CAPTURE(to_string(asked), to_string(seen), to_string(fitting));
        REQUIRE(launch_shape(seen, fitting).workspace_bytes() <= bytes);
      }
    }
  }
  CAPTURE(needing);
  CHECK(needing > rounds() / 50);
  CHECK(limited > 0);  // else nothing was tried
  if (std::getenv("JITGEMM_TEST_WORKSPACES"))
    std::printf("%d problems, %d with a workspace, %d whose pointers want more than it\n", rounds(), needing, limited);
}

TEST_CASE("gemm() takes no more than a workspace of workspace_size(), whatever the pointers", "[context][workspace]") {
  FakeGpu::reset();
  FakeNvrtc::reset();
  cuda::DriverApi driver = FakeGpu::api();
  driver.launch_kernel_ex = [](const CUlaunchConfig*, CUfunction, void**, void**) { return FakeGpu::work(); };
  driver.pointer_get_attributes = FakeDriver::api().pointer_get_attributes;
  cuda::NvrtcApi nvrtc = FakeNvrtc::api();
  cuda::driver_for_tests = &driver;
  cuda::nvrtc_for_tests = &nvrtc;
  {
    const TemporaryDirectory directory;
    Context context({.tuning = Tuning::off, .cache_dir = directory.path().string()});
    Random random(test_seed());
    INFO("JITGEMM_TEST_SEED=" << test_seed());
    int short_of = 0;
    for (int i = 0; i < rounds(); ++i) {
      const Problem problem = draw(random, true);
      const std::size_t bytes = context.workspace_size(problem);
      const auto at = [&](std::uintptr_t place, DataType type) {
        return reinterpret_cast<void*>((place << 44) + size_of(type) * std::uintptr_t(random.between(0, 16)));
      };
      Operands operands{
          .a = at(1, problem.a.type), .b = at(2, problem.b.type), .c = at(3, f64), .d = at(4, problem.d.type)};
      operands.workspace = reinterpret_cast<void*>(std::uintptr_t(5) << 44);
      operands.workspace_bytes = bytes;
      const auto error = error_if_any([&] { context.gemm(problem, operands); });
      CAPTURE(to_string(problem), error ? error->what() : "");
      short_of += error.has_value();
      REQUIRE(short_of == 0);
    }
    CHECK(context.counters().workspace_bytes <= 64 * 1024 * sizeof(unsigned));  // counters alone
    if (std::getenv("JITGEMM_TEST_WORKSPACES")) std::printf("%d calls, %d short\n", rounds(), short_of);
  }
  cuda::driver_for_tests = nullptr;
  cuda::nvrtc_for_tests = nullptr;
  FakeGpu::reset();
}
