#pragma once

#include "backend/emulator/launch.hpp"
#include "backend/emulator/matrix_product.hpp"

namespace jitgemm::emulator {

constexpr u32 max_n = 256;

/// Where a wgmma is computed: too large for the stacks of fibers, and for thread-local storage, which every thread of a
/// process pays for.
struct WgmmaScratch {
  alignas(32) u32 packed[max_n * 8];
  alignas(32) u32 a[64 * max_depth], b[max_n * max_depth], turned[max_n * max_depth];  // widened
};

/// The accumulators of a wgmma while they belong to the tensor cores.
struct Accumulators {
  u32* registers[128];  // each thread's: f32, or s32
  u32 n = 0;
  bool integers = false;
  std::vector<u32> values;  // 64 x n
  u32 last_group = 0;       // that adds to them
  bool in_flight[4] = {};   // for each warp, until its wait
};

struct PendingWgmma {
  TensorType a_type, b_type;
  bool transpose_a, transpose_b, accumulate;
  u32 n, group;
  u64 a, b;
  Accumulators* accumulators;

  bool same_operation(const PendingWgmma& o) const {
    return a_type == o.a_type && b_type == o.b_type && transpose_a == o.transpose_a && transpose_b == o.transpose_b &&
           accumulate == o.accumulate && n == o.n && a == o.a && b == o.b;
  }
};

struct Warpgroup {
  Warpgroup(Block& its_block, u32 first_thread);

  Block& block;
  u32 first;        // thread
  u32 arrived = 0;  // warps at a collective of the warpgroup
  Collective collective = Collective::none;
  Entity entity = 0;
  u32 open_group[4] = {1, 1, 1, 1};                // of each warp
  bool needs_fence[4] = {true, true, true, true};  // before a wgmma on registers that threads may have touched
  u32 registers;                                   // a thread
  PendingWgmma operation;                          // of the warps that have arrived
  std::vector<PendingWgmma> pending;
  std::vector<std::unique_ptr<Accumulators>> accumulators;
};

/// Some of the warpgroup's pending wgmmas take effect, the oldest first.
void fire_wgmma(Thread& thread);

/// A fault if the thread ends with a wgmma that it did not wait for.
void check_wgmma_finished(Thread& thread);

}  // namespace jitgemm::emulator
