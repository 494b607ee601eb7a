#include <cmath>
#include <cstring>

#include "catch.hpp"
#include "emulator_fault_kernels.hpp"
#include "errors.hpp"
#include "test_emulator.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Fixture {
  EmulatorKernel kernel{faulty_kernels};
  std::vector<std::uint32_t> a = std::vector<std::uint32_t>(6 * 64 * 4), d = std::vector<std::uint32_t>(1024);
  std::vector<float> partials = std::vector<float>(1024 * 4);
  unsigned counter = 0;

  std::string run(FaultyKernel which, int omit, int threads, const EmulatorOptions& options = {}, int grid = 1,
                  std::size_t smem = 4096) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::uint32_t(i * i);
    std::fill(d.begin(), d.end(), 0);
    counter = 0;
    device::Arguments p{};
    p.a = a.data();
    p.d = d.data();
    p.partials = partials.data();
    p.counters = &counter;
    p.m = which;
    p.n = omit;
    p.k = threads;
    return kernel.run(options, {grid, threads, smem}, p);
  }
};

}  // namespace

TEST_CASE("The emulator runs synchronised kernels under every adversary", "[emulator]") {
  Fixture f;
  for (const EmulatorOptions& options : adversaries(50)) {
    INFO("seed " << options.seed << ", asynchrony " << int(options.asynchrony));
    REQUIRE(f.run(exchange, 0, 96, options, 5) == "");
    for (unsigned t = 0; t < 5 * 96; ++t) REQUIRE(f.d[t] == 3 * ((t % 96 + 1) % 96) + 3);
    REQUIRE(f.run(warp_exchange, 0, 64, options) == "");
    REQUIRE(f.run(pipeline, 0, 64, options) == "");
    for (unsigned t = 0; t < 64; ++t) {
      std::uint32_t sum = 0;
      for (unsigned round = 0; round < 6; ++round) sum += f.a[(round * 64 + (t ^ 32)) * 4 + 1];
      REQUIRE(f.d[t] == sum);
    }
    REQUIRE(f.run(fixup, 0, 64, options, 7) == "");
    float sum;
    std::memcpy(&sum, &f.d[63], 4);
    REQUIRE(sum == 28);
    REQUIRE(f.counter == 0);
    REQUIRE(f.run(fixup_of_warps, 0, 160, options) == "");
    std::memcpy(&sum, &f.d[31], 4);
    REQUIRE(sum == 15);
    REQUIRE(f.run(mbarriers, 5, 64, options) == "");
    REQUIRE(f.run(warpgroups, 0, 384, options) == "");
    REQUIRE(f.run(warpgroups, 5, 512, options) == "");
    REQUIRE(f.run(small_stores, 0, 64, options) == "");
    for (unsigned t = 0; t < 64; ++t) {
      const unsigned first = (t ^ 16) / 4 * 4 + 1;
      const unsigned word = first | (first + 1) << 8 | (first + 2) << 16 | (first + 3) << 24;
      REQUIRE(f.d[t] == t + word + ((t ^ 32) % 2 ? 0 : (62 - (t ^ 32)) / 2));
    }
    for (const int size : {1, 2, 4}) {
      REQUIRE(f.run(own_parts, size, 64, options) == "");
      for (int t = 0; t < 64 / size; ++t) REQUIRE(f.d[t] == 9);
    }
  }
}

TEST_CASE("The emulator finds a missing barrier, wait or fence of the portable main loop under every adversary",
          "[emulator]") {
  Fixture f;
  for (const EmulatorOptions& options : adversaries(4)) {
    INFO("seed " << options.seed << ", asynchrony " << int(options.asynchrony));
    CHECK_THAT(f.run(exchange, 1, 96, options), ContainsSubstring("race: "));
    CHECK_THAT(f.run(exchange, 2, 96, options), ContainsSubstring("race: "));
    CHECK_THAT(f.run(warp_exchange, 1, 64, options), ContainsSubstring("race: "));
    CHECK_THAT(f.run(pipeline, 1, 64, options), ContainsSubstring("race: ") && ContainsSubstring("cp.async of thread"));
    CHECK_THAT(f.run(pipeline, 2, 64, options), ContainsSubstring("race: "));
    CHECK_THAT(f.run(pipeline, 4, 64, options), ContainsSubstring("race: "));
    CHECK_THAT(f.run(pipeline, 8, 64, options), ContainsSubstring("ends with a cp.async of group 6 unfinished"));
    // Where the warp that writes runs last, nothing is written yet.
    CHECK_THAT(f.run(fixup, 1, 64, options, 5),
               ContainsSubstring("ld_global_cg") &&
                   (ContainsSubstring("not released") || ContainsSubstring("which no block has written")));
    CHECK_THAT(f.run(fixup, 2, 64, options, 5), ContainsSubstring("ld_global_cg"));
    CHECK_THAT(f.run(fixup, 4, 64, options, 5), ContainsSubstring("ld_global_cg"));
    for (const int omit : {1, 2, 4})
      CHECK_THAT(f.run(fixup_of_warps, omit, 160, options), ContainsSubstring("ld_global_cg"));
  }
}

TEST_CASE("The emulator finds a missing barrier around stores smaller than a word under every adversary",
          "[emulator]") {
  Fixture f;
  for (const EmulatorOptions& options : adversaries(4)) {
    INFO("seed " << options.seed << ", asynchrony " << int(options.asynchrony));
    for (const int omit : {1, 2, 4, 8, 16, 32, 64}) {
      INFO("without " << omit);
      CHECK_THAT(f.run(small_stores, omit, 64, options), ContainsSubstring("race: "));
    }
  }
  CHECK_THAT(f.run(small_stores, 32, 64), ContainsSubstring("race: st_shared at shared address 0x42b"));
  CHECK_THAT(f.run(wrong_size, 3, 32), ContainsSubstring("ld_shared of 3 bytes"));
  CHECK_THAT(f.run(wrong_size, 32, 32), ContainsSubstring("ld_shared of 32 bytes"));
  CHECK_THAT(f.run(wrong_size, 0, 32), ContainsSubstring("ld_shared of 0 bytes"));
  CHECK_THAT(f.run(wrong_size, -12, 32), ContainsSubstring("st_shared of 12 bytes"));
}

TEST_CASE("The emulator's faults name the block, the thread, the operation and the other party", "[emulator]") {
  Fixture f;
  CHECK_THAT(f.run(exchange, 1, 64),
             ContainsSubstring("block 0, thread 1 (warp 0): race: st_shared at shared address 0x410") &&
                 ContainsSubstring("its reader, thread 0 (warp 0)"));
  CHECK_THAT(f.run(collectives, 0, 32), ContainsSubstring("warp_uniform while lane 0 of the warp is in warp_sync"));
  CHECK_THAT(f.run(collectives, 1, 32), ContainsSubstring("ends while other lanes of its warp wait in warp_sync"));
  CHECK_THAT(f.run(collectives, 2, 32), ContainsSubstring("ends while other lanes"));
  CHECK_THAT(f.run(collectives, 3, 96),
             ContainsSubstring("barrier 1 with 96 threads") && ContainsSubstring("thread 0 waits there with 64"));
  CHECK_THAT(f.run(collectives, 4, 96),
             ContainsSubstring("hangs") &&
                 ContainsSubstring("threads 0-31: at barrier 2, which 32 threads have reached of 64"));
  CHECK_THAT(f.run(collectives, 5, 64), ContainsSubstring("barrier 1: some lanes of warp"));
  CHECK_THAT(f.run(collectives, 6, 32), ContainsSubstring("barriers 0 to 15"));
  CHECK_THAT(f.run(collectives, 7, 64), ContainsSubstring("not a multiple of 32"));
  EmulatorOptions bounded;
  bounded.step_cap = 100000;
  CHECK_THAT(f.run(collectives, 8, 32, bounded), ContainsSubstring("no end after 100000 steps"));

  CHECK(f.run(shared_access, 4080, 32) == "");
  CHECK_THAT(f.run(shared_access, 4096, 32),
             ContainsSubstring("thread 5") && ContainsSubstring("outside of the block's [0x400, 0x1400)"));
  CHECK_THAT(f.run(shared_access, -16, 32), ContainsSubstring("outside"));
  CHECK_THAT(f.run(shared_access, 8, 32), ContainsSubstring("not a multiple of 16"));
  CHECK_THAT(f.run(global_access, 2, 32), ContainsSubstring("thread 7") && ContainsSubstring("not a multiple"));

  CHECK_THAT(f.run(mbarriers, 0, 64), ContainsSubstring("there is no initialised mbarrier at 0x400"));
  CHECK_THAT(f.run(mbarriers, 1, 64), ContainsSubstring("where an mbarrier is"));
  CHECK_THAT(f.run(mbarriers, 2, 64), ContainsSubstring("initialisation by thread 0"));
  CHECK_THAT(f.run(mbarriers, 3, 64),
             ContainsSubstring("threads 0-31: at mbarrier 0x400 for parity 0") &&
                 ContainsSubstring("threads 32-63: at mbarrier 0x408 for parity 0: its phase 0 lacks 1 of 1"));
  CHECK_THAT(f.run(mbarriers, 4, 64), ContainsSubstring("all 1 threads have arrived in phase 1 already"));

  CHECK_THAT(f.run(warpgroups, 1, 256),
             ContainsSubstring("setmaxnreg_inc(232)") || ContainsSubstring("setmaxnreg_inc from"));
  CHECK_THAT(f.run(warpgroups, 1, 512), ContainsSubstring("hangs") && ContainsSubstring("in setmaxnreg_inc(232)"));
  CHECK_THAT(f.run(warpgroups, 6, 512), ContainsSubstring("hangs") && ContainsSubstring("in setmaxnreg_inc(168)"));
  CHECK_THAT(f.run(warpgroups, 2, 128), ContainsSubstring("not a multiple of 8 in 24..256"));
  CHECK_THAT(f.run(warpgroups, 3, 128), ContainsSubstring("setmaxnreg_inc from 248 to 24"));
  CHECK_THAT(f.run(warpgroups, 4, 128),
             ContainsSubstring("hangs") && ContainsSubstring("setmaxnreg, which the whole warpgroup must call"));

  // And it is still usable.
  CHECK(f.run(exchange, 0, 64) == "");
}

TEST_CASE("Uninitialised shared memory of the emulator is NaN", "[emulator]") {
  Fixture f;
  REQUIRE(f.run(poison, 0, 32) == "");
  CHECK(f.d[0] == 0xffffffff);
}

TEST_CASE("The emulator's error says how to see the fault again", "[emulator]") {
  auto backend = make_emulator_backend({});
  const auto kernel =
      backend->load(backend->compile({emulator_text(faulty_kernels), "kernel", "sm_90a", "test"}), 4096);
  device::Arguments p{};
  p.m = collectives;
  EmulatorOptions options;
  options.seed = 17;
  options.resident_blocks = 2;
  const Error error = error_of(
      [&] { make_emulator_backend(options)->launch(*kernel, emulator_shape(1, 32, 0), bytes_of(p), nullptr); });
  CHECK(error.code() == ErrorCode::emulator_fault);
  CHECK_THAT(error.what(), ContainsSubstring("the emulator's seed 17 shows it again"));
  CHECK_THAT(error.log(), ContainsSubstring("(seed 17, 2 resident blocks)"));
}
