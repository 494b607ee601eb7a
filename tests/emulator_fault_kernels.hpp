#pragma once

namespace jitgemm::test {

// Arguments::m chooses a kernel, n what it leaves out or does wrong; k is the block's size.
inline constexpr const char* faulty_kernels = R"(
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

__device__ void st_byte(u32 address, unsigned char x) { runtime.st_shared(address, &x, 1); }
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
  if (t % 4 == 0) runtime.st_shared(smem + t, &sum, 4);
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
    runtime.st_shared(dynamic_smem() + t * size, &x, size);
    runtime.ld_shared(dynamic_smem() + t * size, &x, size);
    sum += x;
  }
  st_global<u32>(static_cast<u32*>(p.d) + t, sum);
}

__device__ void wrong_size(const Arguments& p, int size) {
  u32 x[8] = {};
  if (size < 0)
    runtime.st_shared(dynamic_smem(), x, -size);
  else
    runtime.ld_shared(dynamic_smem(), x, size);
}

__device__ void run(const Arguments& p) {
  void (*const kernels[])(const Arguments&, int) = {
      exchange,      warp_exchange, pipeline, fixup,     fixup_of_warps, collectives,
      shared_access, global_access, poison,   mbarriers, warpgroups,     small_stores,
      own_parts,     wrong_size};
  kernels[p.m](p, p.n);
}
)";

enum FaultyKernel {
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

}  // namespace jitgemm::test
