#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "catch.hpp"
#include "test_emulator.hpp"

namespace jitgemm::test {

// Arguments::m chooses a kernel, n what it leaves out or does wrong; k is the cluster's size. Blocks have 64 threads,
// those of the ring 96.
inline constexpr const char* cluster_kernels = R"(
__device__ void cluster_sync() {
  cluster_arrive_relaxed();
  cluster_wait();
}

// Each block loads its slice of a step to all blocks of the cluster; all blocks add up all slices.
__device__ void ring(const Arguments& p, int omit) {
  enum { first_sync = 1, init_fence = 2, empty_wait = 4, peers_release = 8, early_release = 16, full_wait = 32,
         last_wait = 64 };
  constexpr int STEPS = 5, SLICE = 8 * 128;
  const u32 t = thread_index(), lane = t % 32, rank = cluster_rank(), blocks = p.k;
  const u32 smem = (dynamic_smem() + 1023) / 1024 * 1024, full = smem + 2 * blocks * SLICE, empty = full + 16;
  if (t == 0) {
    for (int s = 0; s < 2; ++s) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, (omit & peers_release) ? 2 : 2 * blocks);
    }
    if (!(omit & init_fence)) fence_mbarrier_init();
  }
  if (omit & first_sync)
    bar_sync(0, 96);
  else
    cluster_sync();

  if (t < 32) {
    for (int k = 0; k < STEPS + 2 && t == 0; ++k) {
      const u32 s = k % 2;
      const bool last = k >= STEPS;  // the block stays until all have arrived
      if (!(omit & (last ? last_wait : empty_wait))) mbarrier_wait_parity(empty + 8 * s, k / 2 % 2 ^ 1);
      if (last) continue;
      mbarrier_arrive_expect_tx(full + 8 * s, blocks * SLICE);
      tma_load_multicast_3d(smem + (s * blocks + rank) * SLICE, &p.map_a, full + 8 * s, 0, (k * blocks + rank) * 8,
                            block_index() / blocks, (1 << blocks) - 1);
    }
  } else {
    const auto release = [&](u32 barrier) {
      warp_sync();  // the other lanes have read
      if ((omit & peers_release) && lane == 0) mbarrier_arrive(barrier);
      if (!(omit & peers_release) && lane < blocks) mbarrier_arrive_cluster(map_to_rank(barrier, lane));
    };
    u32 sum = 0;
    for (int k = 0; k < STEPS; ++k) {
      const u32 s = k % 2;
      if (!(omit & full_wait)) mbarrier_wait_parity(full + 8 * s, k / 2 % 2);
      if (omit & early_release) release(empty + 8 * s);
      for (u32 slice = 0; slice < blocks; ++slice)
        sum += (k * blocks + slice + 1) * ld_shared_v4(smem + (s * blocks + slice) * SLICE + (t - 32) * 16).x;
      if (!(omit & early_release)) release(empty + 8 * s);
    }
    static_cast<u32*>(p.d)[block_index() * 64 + t - 32] = sum;
  }
}

// Each block stores to the next one, which tells it when it has read.
__device__ void exchange(const Arguments& p, int omit) {
  const u32 t = thread_index(), smem = dynamic_smem(), full = smem + 64 * 16, empty = full + 8;
  const u32 next = (cluster_rank() + 1) % p.k, previous = (cluster_rank() + p.k - 1) % p.k;
  if (t == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, 2);
    fence_mbarrier_init();
  }
  omit & 1 ? bar_sync(0, 64) : cluster_sync();
  float sum = 0;
  for (int round = 0; round < 3; ++round) {
    if (t == 0) mbarrier_arrive_expect_tx(full, omit & 32 ? 32 * 16 : 64 * 16);
    const float x[4] = {0, float(100 * block_index() + t + round)};
    st_async_cluster(map_to_rank(smem + 16 * t, next), x, map_to_rank(full, next));
    omit & 2 ? bar_sync(0, 64) : omit & 8 ? cluster_sync() : mbarrier_wait_parity(full, round % 2);
    float y[4];
    ld_shared_v4(smem + 16 * ((t + 1) % 64), y);
    sum += y[1];
    warp_sync();  // the other lanes have read
    if (t % 32 == 0) mbarrier_arrive_cluster(map_to_rank(empty, previous));
    omit & 4 ? bar_sync(0, 64) : omit & 16 ? cluster_sync() : mbarrier_wait_parity(empty, round % 2);
  }
  static_cast<u32*>(p.d)[block_index() * 64 + t] = sum;
}

// All blocks store to the first one, by one barrier, and arrive at another of its barriers, which does not release what
// they have stored.
__device__ void signal(const Arguments& p, int omit) {
  const u32 t = thread_index(), rank = cluster_rank(), smem = dynamic_smem();
  const u32 there = smem + p.k * 64 * 16, arrivals = there + 8;
  if (t == 0 && rank == 0) {
    mbarrier_init(there, 1);
    mbarrier_arrive_expect_tx(there, (p.k - 1) * 64 * 16);
    mbarrier_init(arrivals, 2 * (p.k - 1));
    fence_mbarrier_init();
  }
  cluster_sync();
  if (rank > 0) {
    const int x[4] = {int(block_index()), int(t), 0, 0};
    st_async_cluster(map_to_rank(smem + (rank * 64 + t) * 16, 0), x, map_to_rank(there, 0));
    warp_sync();  // the other lanes have stored
    if (t % 32 == 0) mbarrier_arrive_cluster(map_to_rank(arrivals, 0));
  } else {
    if (!(omit & 1)) mbarrier_wait_parity(there, 0);
    if (!(omit & 2)) mbarrier_wait_parity(arrivals, 0);
    if (!(omit & 4)) static_cast<u32*>(p.d)[block_index() * 64 + t] = ld_shared_u32(smem + (64 + (t ^ 1)) * 16 + 4);
  }
}

// The first block tells all blocks numbers, through a ring of two each, and they tell it which they have read.
__device__ void told(const Arguments& p, int omit) {
  const u32 t = thread_index(), rank = cluster_rank(), blocks = p.k, smem = dynamic_smem(), barriers = smem + 32;
  if (t == 0) {
    for (u32 s = 0; s < 2; ++s) {
      mbarrier_init(barriers + 16 * s, 1);
      mbarrier_init(barriers + 16 * s + 8, 2 * blocks);
    }
    fence_mbarrier_init();
  }
  omit & 16 ? bar_sync(0, 64) : cluster_sync();
  u32 sum = 0;
  for (u32 i = 0; i < 5; ++i) {
    const u32 number = smem + i % 2 * 16, full = barriers + i % 2 * 16, empty = full + 8;
    if (rank == 0 && t < blocks) {
      if (!(omit & 1)) mbarrier_wait_parity(empty, i / 2 % 2 ^ 1);
      mbarrier_arrive_expect_tx_cluster(map_to_rank(full, t), omit & 2 ? 0 : 16);
      const int x[4] = {int(10 * i + t), 1, 2, 3};
      st_async_cluster(map_to_rank(number, t), x, map_to_rank(full, omit & 4 ? 0 : t));
    }
    if (!(omit & 8)) mbarrier_wait_parity(full, i / 2 % 2);
    sum = 3 * sum + ld_shared_u32(number);
    warp_sync();
    if (t % 32 == 0) mbarrier_arrive_cluster(map_to_rank(empty, 0));
  }
  static_cast<u32*>(p.d)[block_index() * 64 + t] = sum;
  for (u32 i = 5; i < 7 && rank == 0 && !(omit & 32); ++i)  // the block stays until all have read
    mbarrier_wait_parity(barriers + i % 2 * 16 + 8, i / 2 % 2 ^ 1);
}

// The second block stores what the first one stores by TMA.
__device__ void staged(const Arguments& p, int omit) {
  const u32 t = thread_index(), smem = (dynamic_smem() + 1023) / 1024 * 1024, there = smem + 1024;
  if (t == 0) {
    mbarrier_init(there, 1);
    fence_mbarrier_init();
  }
  cluster_sync();
  if (cluster_rank() == 1) {
    const int x[4] = {int(t), 1, 2, 3};
    st_async_cluster(map_to_rank(smem + t * 16, 0), x, map_to_rank(there, 0));
    if (omit & 2) fence_proxy_async();  // which is of no use
  }
  if (cluster_rank() == 0 && t == 0) {
    mbarrier_arrive_expect_tx(there, 64 * 16);
    mbarrier_wait_parity(there, 0);
    if (!(omit & 1)) fence_proxy_async();
    tma_store_3d(&p.map_d, smem, 0, 0, 0);
    tma_store_commit_group();
    tma_store_wait_group_read<0>();
  }
}

// Partial sums of all blocks, each of which counts its own: the cluster's barrier does not release them to the first
// block, for it to count its cluster.
__device__ void partials(const Arguments& p, int omit) {
  const u32 t = thread_index(), counts = omit & 1 ? grid_size() / p.k : grid_size();
  float* slots = static_cast<float*>(p.partials);
  const float mine[4] = {float(block_index() + 1)};
  st_global_cg(slots + (block_index() * 64 + t) * 4, mine);
  bar_sync(0, 64);
  if (omit & 1) {
    cluster_sync();
    if (cluster_rank() > 0) return;
  }
  if (!bar_red_or(0, 64, t == 0 && atom_inc_acq_rel_gpu(p.counters, counts - 1) == counts - 1)) return;
  u32 sum = 0;
  for (u32 block = 0; block < grid_size(); ++block) {
    float x[4];
    ld_global_cg(slots + (block * 64 + (t ^ 1)) * 4, x);
    sum += x[0];
  }
  static_cast<u32*>(p.d)[t] = sum;
}

__device__ void bases(const Arguments& p, int) {
  static_cast<u32*>(p.d)[block_index() * 64 + thread_index()] = dynamic_smem();
}

__device__ void misuse(const Arguments& p, int wrong) {
  const u32 t = thread_index(), rank = cluster_rank(), smem = (dynamic_smem() + 1023) / 1024 * 1024;
  const u32 barrier = smem + 1024;
  const bool first = t == 0 && rank == 0;
  const int x[4] = {};
  if (t == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    if (wrong == 15 && rank == 0) mbarrier_arrive_cluster(map_to_rank(barrier, 1));
  }
  if (wrong == 0 && t == 3) cluster_arrive_relaxed(), cluster_arrive_relaxed();
  if (wrong == 1) cluster_wait();
  if (wrong == 2 && t == 9) {
    cluster_arrive_relaxed();
    return;
  }
  if (wrong == 3 && first) bar_sync(1, 64);
  if (wrong == 14 && t > 32 && rank == 1) return;
  cluster_sync();
  if (wrong == 4 && first) ld_shared_u32(map_to_rank(smem, 0));
  if (wrong == 5 && first) st_async_cluster(smem, x, map_to_rank(barrier, 0));
  if (wrong == 6 && first) map_to_rank(smem, p.k);
  if (wrong == 7 && first) map_to_rank(map_to_rank(smem, 1), 1);
  if (wrong == 8 && first) st_async_cluster(map_to_rank(smem, 1), x, barrier);
  if (wrong == 9 && first) mbarrier_arrive_cluster(map_to_rank(smem, 1));
  if (wrong == 10 && first) mbarrier_wait_parity(map_to_rank(barrier, 0), 0);
  if (wrong == 11 && first) tma_load_multicast_3d(smem, &p.map_d, barrier, 0, 0, 0, 0);
  if (wrong == 12 && first) tma_load_multicast_3d(smem, &p.map_d, barrier, 0, 0, 0, 1 << p.k | 1);
  if (wrong == 13 && first) tma_load_3d(map_to_rank(smem, 0), &p.map_d, barrier, 0, 0, 0);
  if (wrong == 16 && first) st_async_cluster(map_to_rank(smem + 8, 1), x, map_to_rank(barrier, 1));
  if (wrong == 17 && first) st_async_cluster(map_to_rank(smem + (64 << 10), 1), x, map_to_rank(barrier, 1));
  if (wrong == 18 && first) st_async_cluster(map_to_rank(smem, 1) + (100u << 24), x, map_to_rank(barrier, 1));
  if (wrong == 19 && first) st_async_cluster(map_to_rank(barrier, 1), x, map_to_rank(barrier, 1));
  if (wrong >= 20 && rank == 0) {
    cluster_sync();  // without the other block: it has ended
    if (wrong == 20 && t == 0) mbarrier_arrive_cluster(map_to_rank(barrier, 1));
    if (wrong == 21 && t == 0) st_async_cluster(map_to_rank(smem, 1), x, map_to_rank(barrier, 1));
    if (wrong == 22 && t == 0) tma_load_multicast_3d(smem, &p.map_d, barrier, 0, 0, 0, 2);
  }
}

__device__ void run(const Arguments& p) {
  void (*const kernels[])(const Arguments&, int) = {ring, exchange, signal, told, staged, partials, bases, misuse};
  kernels[p.m](p, p.n);
}
)";

enum ClusterKernel { ring, exchange, signal, told, staged, partials, bases, misuse };
enum RingOmit {
  first_sync = 1,
  init_fence = 2,
  empty_wait = 4,
  peers_release = 8,
  early_release = 16,
  full_wait = 32,
  last_wait = 64
};

/// Runs them, and knows what the ring adds up.
struct ClusterFixture {
  static constexpr int steps = 5, clusters = 3;

  EmulatorKernel kernel{cluster_kernels};
  std::unique_ptr<Backend> backend = make_emulator_backend({});
  std::vector<std::uint32_t> a = std::vector<std::uint32_t>(clusters * steps * 8 * 8 * 32);
  std::vector<std::uint32_t> d = std::vector<std::uint32_t>(64 * 8 * clusters);
  std::vector<float> slots = std::vector<float>(64 * 8 * clusters * 4);
  unsigned counter = 0;

  std::string run(ClusterKernel which, int omit, int cluster, const EmulatorOptions& options = {},
                  int count = clusters) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::uint32_t(i * i);
    std::fill(d.begin(), d.end(), 0);
    counter = 0;
    const int outer = steps * cluster * 8;
    device::Arguments p{};
    p.map_a = backend->encode_tensor_map({a.data(), s32, 32, outer, clusters, 32, outer * 32, 32, 8});
    p.map_d = backend->encode_tensor_map({d.data(), s32, 32, 8, 1, 32, 0, 32, 8});
    p.d = d.data();
    p.partials = slots.data();
    p.counters = &counter;
    p.m = which;
    p.n = omit;
    p.k = cluster;
    return kernel.run(options, {count * cluster, which == ring ? 96 : 64, 20 << 10, cluster}, p);
  }

  void check_ring(int cluster) const {
    for (int block = 0; block < clusters * cluster; ++block)
      for (int t = 0; t < 64; ++t) {
        const int row = t / 8, chunk = t % 8 ^ row;
        std::uint32_t sum = 0;
        for (int slice = 0; slice < steps * cluster; ++slice)
          sum += std::uint32_t(slice + 1) *
                 a[std::size_t(((block / cluster * steps * cluster + slice) * 8 + row) * 32 + chunk * 4)];
        REQUIRE(d[std::size_t(block * 64 + t)] == sum);
      }
  }
};

}  // namespace jitgemm::test
