#include <cmath>
#include <cstring>

#include "catch.hpp"
#include "errors.hpp"
#include "test_emulator.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

// Arguments::m chooses a kernel, n what it leaves out or does wrong; k is the block's size.
const char* const body = R"(
__device__ void exchange(const Arguments& p, int omit) {
  const u32 t = thread_index(), smem = dynamic_smem(), threads = p.k;
  u32* d = static_cast<u32*>(p.d) + block_index() * threads;
  for (u32 round = 0; round < 3; ++round) {
    st_shared_v4(smem + 16 * t, {t + round, 0, 0, 0});
    if (!(omit & 1)) bar_sync(0, threads);
    d[t] += ld_shared_v4(smem + 16 * ((t + 1) % threads)).x;
    if (!(omit & 2)) bar_sync(0, threads);
  }
}

__device__ void warp_exchange(const Arguments& p, int omit) {
  const u32 t = thread_index(), smem = dynamic_smem();
  st_shared_v2(smem + 8 * t, 1, 2);
  if (!(omit & 1)) warp_sync();
  st_global<u32>(static_cast<u32*>(p.d) + t, ld_shared_v4(smem + 16 * (t / 32 * 16 + t % 16)).x);
}

__device__ void pipeline(const Arguments& p, int omit) {
  const u32 t = thread_index(), smem = dynamic_smem(), threads = p.k;
  const u32* a = static_cast<const u32*>(p.a);
  u32 sum = 0;
  auto load = [&](u32 round) {
    cp_async<16>(smem + round % 2 * threads * 16 + t * 16, a + (round * threads + t) * 4, 16);
    cp_async_commit_group();
  };
  load(0);
  for (u32 round = 0; round < 6; ++round) {
    if (round + 1 < 6) {
      load(round + 1);
      if (!(omit & 1)) cp_async_wait_group<1>();
    } else if (!(omit & 8)) {
      cp_async_wait_group<0>();
    }
    if (!(omit & 2)) bar_sync(0, threads);
    if (!(omit & 8) || round < 5) sum += ld_shared_v4(smem + round % 2 * threads * 16 + (t ^ 32) * 16).y;
    if (!(omit & 4)) bar_sync(0, threads);
  }
  st_global<u32>(static_cast<u32*>(p.d) + t, sum);
}

// Every group of threads contributes its rank + 1 to each element; the last sums.
__device__ void fixup_of(const Arguments& p, int omit, u32 t, u32 threads, u32 rank, u32 peers, u32 barrier) {
  float* partials = static_cast<float*>(p.partials);
  const float mine[4] = {float(rank + 1)};
  st_global_cg(partials + (rank * threads + t) * 4, mine);
  if (!(omit & 1)) bar_sync(barrier, threads);
  bool last = false;
  if (t == 0) {
    if (!(omit & 4))
      last = atom_inc_acq_rel_gpu(p.counters, peers - 1) == peers - 1;
    else
      last = rank + 1 == peers;
  }
  if (omit & 2)
    last = t == 0 ? last : *p.counters == 0;
  else
    last = bar_red_or(barrier, threads, last);
  if (!last) return;
  float sum = 0;
  for (u32 peer = 0; peer < peers; ++peer) {
    float x[4];
    ld_global_cg(partials + (peer * threads + (t ^ 1)) * 4, x);
    sum += x[0];
  }
  st_global<float>(static_cast<float*>(p.d) + t, sum);
}

__device__ void fixup(const Arguments& p, int omit) {
  fixup_of(p, omit, thread_index(), p.k, block_index(), grid_size(), 0);
}

__device__ void fixup_of_warps(const Arguments& p, int omit) {
  const u32 warp = thread_index() / 32;
  fixup_of(p, omit, thread_index() % 32, 32, warp, p.k / 32, 1 + warp);
}

__device__ void collectives(const Arguments& p, int wrong) {
  const u32 t = thread_index(), smem = dynamic_smem();
  if (wrong == 0) t < 16 ? warp_sync() : void(warp_uniform(t));
  if (wrong == 1) {
    if (t == 3) return;
    warp_sync();
  }
  if (wrong == 2 && t < 31) warp_sync();
  if (wrong == 3) bar_sync(1, t < 32 ? 64 : 96);
  if (wrong == 4 && t < 32) bar_sync(2, 64);
  if (wrong == 5 && t % 32 < 16) bar_sync(1, 32);
  if (wrong == 6) bar_sync(16, 32);
  if (wrong == 7) bar_sync(0, 48);
  if (wrong == 8)
    while (true) ld_shared_v4(smem);
}

__device__ void shared_access(const Arguments& p, int offset) {
  if (thread_index() == 5) st_shared_v4(dynamic_smem() + offset, {1, 2, 3, 4});
}

__device__ void global_access(const Arguments& p, int offset) {
  const char* from = static_cast<const char*>(p.a) + offset;
  if (thread_index() == 7) st_global<float>(p.d, ld_global<float>(from));
}

__device__ void poison(const Arguments& p, int) {
  if (thread_index() == 0) st_global<u32>(p.d, ld_shared_v4(dynamic_smem() + 16).z);
}

__device__ void mbarriers(const Arguments& p, int wrong) {
  const u32 t = thread_index(), mine = dynamic_smem() + t / 32 * 8, other = dynamic_smem() + (t / 32 ^ 1) * 8;
  if (wrong == 0) mbarrier_arrive(mine);
  if (t == 0) {
    mbarrier_init(mine, 1);
    mbarrier_init(other, 1);
    if (wrong == 1) st_shared_v4(dynamic_smem(), {});
  }
  if (wrong != 2) bar_sync(0, 64);
  if (wrong == 3) {  // everyone waits for the other, then would let the other go
    mbarrier_wait_parity(mine, 0);
    if (t % 32 == 0) mbarrier_arrive(other);
    return;
  }
  if (wrong == 4 && t == 0) {
    mbarrier_arrive_expect_tx(mine, 100);
    mbarrier_arrive(mine);
  }
  if (t % 32 == 0) mbarrier_arrive(other);
  mbarrier_wait_parity(mine, 0);
}

template <int REGISTERS>
__device__ void registers(bool increase) {
  if (increase)
    setmaxnreg_inc<REGISTERS>();
  else
    setmaxnreg_dec<REGISTERS>();
}
__device__ void warpgroups(const Arguments& p, int wrong) {
  const bool first = thread_index() < 128;
  if (wrong == 0) first ? registers<40>(false) : registers<232>(true);
  if (wrong == 1) registers<232>(true);
  if (wrong == 2) registers<20>(false);
  if (wrong == 3) registers<24>(true);
  if (wrong == 4 && thread_index() < 96) registers<40>(false);
  if (wrong == 5) first ? registers<32>(false) : registers<160>(true);
  if (wrong == 6) first ? registers<32>(false) : registers<168>(true);
}

__device__ void st_byte(u32 address, unsigned char x) { runtime->st_shared(address, &x, 1); }
__device__ u32 ld_byte(u32 address) { return load_shared<unsigned char>(address); }

// 64 threads fill words together, from both ends, so that each word has four writers, then two, then one.
__device__ void small_stores(const Arguments& p, int omit) {
  const u32 t = thread_index(), smem = dynamic_smem();
  u32 sum = 0;
  st_byte(smem + t, t);
  sum += ld_byte(smem + t);  // its own
  st_byte(smem + t, t + 1);
  if (!(omit & 1)) bar_sync(0, 64);
  sum += ld_shared_u32(smem + (t ^ 16) / 4 * 4);
  if (!(omit & 2)) bar_sync(0, 64);
  if (t < 32) st_shared_u16(smem + 62 - 2 * t, t);
  if (!(omit & 4)) bar_sync(0, 64);
  sum += ld_byte(smem + (t ^ 32));
  if (!(omit & 8)) bar_sync(0, 64);
  if (t % 4 == 0) runtime->st_shared(smem + t, &sum, 4);
  if (!(omit & 16)) bar_sync(0, 64);
  if ((omit & 32) && t == 41) st_byte(smem + 43, 1);
  st_byte(smem + t, 7);
  if (!(omit & 64)) bar_sync(0, 64);
  if (t % 16 == 0) st_shared_v4(smem + t, {t, t, t, t});
  st_global<u32>(static_cast<u32*>(p.d) + t, sum);
}

// What one thread does to its own word, or byte, is nobody else's matter, however many share the 16 bytes.
__device__ void own_parts(const Arguments& p, int size) {
  const u32 t = thread_index();
  u32 x = 3, sum = 0;
  if (t * size >= 64) return;
  for (int round = 0; round < 3; ++round) {
    runtime->st_shared(dynamic_smem() + t * size, &x, size);
    runtime->ld_shared(dynamic_smem() + t * size, &x, size);
    sum += x;
  }
  st_global<u32>(static_cast<u32*>(p.d) + t, sum);
}

__device__ void wrong_size(const Arguments& p, int size) {
  u32 x[8] = {};
  if (size < 0)
    runtime->st_shared(dynamic_smem(), x, -size);
  else
    runtime->ld_shared(dynamic_smem(), x, size);
}

__device__ void run(const Arguments& p) {
  void (*const kernels[])(const Arguments&, int) = {
      exchange,      warp_exchange, pipeline, fixup,     fixup_of_warps, collectives,
      shared_access, global_access, poison,   mbarriers, warpgroups,     small_stores,
      own_parts,     wrong_size};
  kernels[p.m](p, p.n);
}
)";

enum Kernel {
  exchange,
  warp_exchange,
  pipeline,
  fixup,
  fixup_of_warps,
  collectives,
  shared_access,
  global_access,
  poison,
  mbarriers,
  warpgroups,
  small_stores,
  own_parts,
  wrong_size
};

struct Fixture {
  EmulatorKernel kernel{body};
  std::vector<std::uint32_t> a = std::vector<std::uint32_t>(6 * 64 * 4), d = std::vector<std::uint32_t>(1024);
  std::vector<float> partials = std::vector<float>(1024 * 4);
  unsigned counter = 0;

  std::string run(Kernel which, int omit, int threads, const EmulatorOptions& options = {}, int grid = 1,
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
    CHECK_THAT(f.run(fixup, 1, 64, options, 5), ContainsSubstring("ld_global_cg") && ContainsSubstring("not released"));
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
  const auto kernel = backend->load(backend->compile({emulator_text(body), "kernel", "sm_90a", "test"}), 4096);
  device::Arguments p{};
  p.m = collectives;
  EmulatorOptions options;
  options.seed = 17;
  options.resident_blocks = 2;
  const Error error =
      error_of([&] { make_emulator_backend(options)->launch(*kernel, emulator_shape(1, 32, 0), p, nullptr); });
  CHECK(error.code() == ErrorCode::emulator_fault);
  CHECK_THAT(error.what(), ContainsSubstring("the emulator's seed 17 shows it again"));
  CHECK_THAT(error.log(), ContainsSubstring("(seed 17, 2 resident blocks)"));
}
