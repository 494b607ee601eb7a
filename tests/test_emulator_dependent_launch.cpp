#include "catch.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sample_configs.hpp"
#include "sandbox.hpp"
#include "test_emulator.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

// n: what is left out; m: how global memory is accessed.
const char* const body = R"(
__device__ void run(const Arguments& p) {
  const u32 t = thread_index(), smem = (dynamic_smem() + 1023) / 1024 * 1024, barrier = smem + 1024;
  const bool by_tma = (p.m >= 6 && p.m <= 8) || (p.m >= 11 && p.m <= 13);
  if (by_tma && t == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(barrier, p.m == 7 ? 0 : 1024);
  }
  prefetch_l2(p.d);
  prefetch_tensormap(&p.map_a);
  if (DEPENDENT_LAUNCH || p.n == 4) griddepcontrol_launch_dependents();
  if (!(p.n & 1) && !((p.n & 2) && t == 0)) griddepcontrol_wait();
  bar_sync(0, 32);
  float x[4] = {}, one = 0, two = 0;
  if (t > 0) return;
  float* d = static_cast<float*>(p.d);
  if (p.m == 0) ld_global<float>(d);
  if (p.m == 1) st_global<float>(d, 1);
  if (p.m == 2) ld_global_v2(d, one, two);
  if (p.m == 3) st_global_v2(d, one, two);
  if (p.m == 4) st_global_cg(d, x), ld_global_cg(d, x), atom_inc_acq_rel_gpu(p.counters, 3);
  if (p.m == 5) {
    cp_async<16>(smem, d, true);
    cp_async_commit_group();
    cp_async_wait_group<0>();
  }
  if (p.m == 6) tma_load_3d(smem, &p.map_a, barrier, 0, 0, 0);
  if (p.m == 7) tma_store_3d(&p.map_a, smem, 0, 0, 0);
  if (p.m == 8) tma_load_multicast_3d(smem, &p.map_a, barrier, 0, 0, 0, 1);
  if (p.m == 9) atom_inc_acq_rel_gpu(p.counters, 3);
  if (p.m == 10) ld_global_cg(d, x);
  if (p.m == 11) tma_load_5d(smem, &p.map_b, barrier, 0, 0, 0, 0, 0);
  if (p.m == 12) tma_load_multicast_5d(smem, &p.map_b, barrier, 0, 0, 0, 0, 0, 1);
  if (p.m == 13) bulk_load(smem, d, 1024, barrier);
  if (by_tma) mbarrier_wait_parity(barrier, 0);
  tma_store_commit_group();
  tma_store_wait_group_read<0>();
}
)";

struct Fixture {
  EmulatorKernel dependent{body, true}, independent{body, false};
  std::unique_ptr<Backend> backend = make_emulator_backend({});
  alignas(16) float d[256] = {};
  unsigned counter = 0;

  std::string run(const EmulatorKernel& kernel, int how, int omit, const EmulatorOptions& options = {}) {
    device::Arguments p{};
    p.map_a = backend->encode_tensor_map({d, f32, 32, 8, 1, 32, 0, 32, 8});
    p.map_b = backend->encode_tensor_map({d, f32, 32, 4, 1, 32, 0, 32, 4, {4 * 32, 1, 0, 1}});
    p.d = d;
    p.counters = &counter;
    p.m = how;
    p.n = omit;
    return kernel.run(options, {1, 32, 4096}, p);
  }
};

constexpr const char* operations[] = {"an access of global memory",
                                      "an access of global memory",
                                      "an access of global memory",
                                      "an access of global memory",
                                      "st_global_cg",
                                      "cp_async",
                                      "tma_load_3d",
                                      "tma_store_3d",
                                      "tma_load_multicast_3d",
                                      "atom_inc_acq_rel_gpu",
                                      "ld_global_cg",
                                      "tma_load_5d",
                                      "tma_load_multicast_5d",
                                      "bulk_load"};

}  // namespace

TEST_CASE("The emulator finds global memory that is touched without a griddepcontrol_wait", "[emulator]") {
  Fixture f;
  for (int how = 0; how <= 13; ++how)
    for (const EmulatorOptions& options : adversaries(2)) {
      INFO(operations[how] << " (" << how << "), seed " << options.seed);
      const bool works = how != 10;  // nobody wrote it in this launch
      if (works) REQUIRE(f.run(f.dependent, how, 0, options) == "");
      for (const int omit : {1, 2})  // nobody waits; the others do
        CHECK_THAT(f.run(f.dependent, how, omit, options),
                   ContainsSubstring("block 0, thread 0 (warp 0): " + std::string(operations[how]) +
                                     " without a griddepcontrol_wait by this thread"));
      if (works) REQUIRE(f.run(f.independent, how, 1, options) == "");
    }
}

TEST_CASE("The emulator finds a kernel that lets the next one start although it is not to", "[emulator]") {
  Fixture f;
  CHECK_THAT(f.run(f.independent, 99, 4),
             ContainsSubstring("griddepcontrol_launch_dependents without DEPENDENT_LAUNCH"));
  CHECK(f.run(f.dependent, 99, 4) == "");
}

namespace {

ContextOptions on_emulator(const TemporaryDirectory& cache, bool dependent_launch) {
  return {.device = Device::emulator,
          .tuning = Tuning::off,
          .dependent_launch = dependent_launch,
          .cache_dir = cache.path().string()};
}

}  // namespace

TEST_CASE("Without dependent_launch no kernel lets the next one start, of either main loop or packing",
          "[emulator][context]") {
  const TemporaryDirectory cache;
  const Problem problem{.m = 70, .n = 50, .k = 67};
  KernelConfig packing = sm90_config;
  packing.pack_a = packing.pack_b = true;
  std::string a(70 * 67 * 2, 0), b(67 * 50 * 2, 0), d(70 * 50 * 2, 1);
  const Operands operands{.a = a.data(), .b = b.data(), .d = d.data()};
  Context with(on_emulator(cache, true)), without(on_emulator(cache, false));
  for (const KernelConfig& config : {sm80_config, packing}) {
    for (const KernelText& kernel : without.sources(problem, config))
      CHECK_THAT(kernel.text, ContainsSubstring("bool DEPENDENT_LAUNCH = false;"));
    for (const KernelText& kernel : with.sources(problem, config))
      CHECK_THAT(kernel.text, ContainsSubstring("bool DEPENDENT_LAUNCH = true;"));
    CHECK_NOTHROW(without.gemm(problem, operands, nullptr, config));  // a trigger would be a fault of the emulator
    CHECK(d == std::string(d.size(), '\0'));
  }
}

TEST_CASE("A cache that was warmed with the same dependent_launch serves gemm(), with the other one it does not",
          "[context]") {
  const TemporaryDirectory cache;
  const Problem problem{.m = 70, .n = 50, .k = 67};
  for (const bool dependent_launch : {true, false}) {
    Context(on_emulator(cache, dependent_launch)).warm(problem);
    Context again(on_emulator(cache, dependent_launch));
    again.compile(problem);
    CHECK(again.counters().compiles == 0);
    CHECK(again.counters().disk_hits > 0);
    // What is compiled for a device that is not there has the same text.
    const ContextOptions options{.device = Device::compile_only,
                                 .architecture = "sm_90a",
                                 .tuning = Tuning::off,
                                 .dependent_launch = dependent_launch};
    CHECK(Context(options).source(problem, sm80_config) == again.source(problem, sm80_config));
  }
  CHECK(Context(on_emulator(cache, true)).source(problem) != Context(on_emulator(cache, false)).source(problem));
}

TEST_CASE("The emulator finds a dependent launch that nobody waits in, though it touches nothing", "[emulator]") {
  Fixture f;
  CHECK_THAT(f.run(f.dependent, 99, 1), ContainsSubstring("ends without a griddepcontrol_wait by any thread"));
  CHECK(f.run(f.dependent, 99, 2) == "");
  CHECK(f.run(f.independent, 99, 1) == "");
}
