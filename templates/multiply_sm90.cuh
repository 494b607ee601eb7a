// How a consumer of the Hopper loop adds up the products of a tile's k-blocks: wgmma, and what promotes its sums.
#pragma once
#include "arguments.cuh"
#include "block_scales_sm90.cuh"
#include "group_tail_sm90.cuh"
#include "groups.cuh"
#include "ide_sm90.cuh"
#include "layout_sm90.cuh"
#include "memory.cuh"
#include "ptx/barrier.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

namespace jitgemm::device {

/// Describes a 128-byte swizzled operand to wgmma (PTX ISA, "Matrix descriptor"): 8-row groups lie 1024 bytes apart
/// (stride offset), and of an M- or N-major operand the next 64 elements of M or N one box on (leading offset; ignored
/// otherwise). `address` is that of wgmma_address.
__device__ __forceinline__ u64 wgmma_descriptor(u32 address) {
  constexpr u64 SWIZZLE_128B = 1ull << 62;
  return SWIZZLE_128B | u64(1024 / 16) << 32 | u64(BOX_BYTES / 16) << 16 | address;
}
__device__ __forceinline__ u32 wgmma_address(u32 smem) {
  u32 address = (smem & 0x3ffff) >> 4;
  ptx::compute_now(address);
  return address;
}

/// All of a descriptor that is not a constant.
__device__ __forceinline__ void compute_low_now(u64& descriptor) {
  u32 low = u32(descriptor);
  ptx::compute_now(low);
  descriptor = descriptor >> 32 << 32 | low;
}

/// Bytes from one wgmma's 32 bytes of k to the next.
template <bool K_MAJOR>
constexpr u32 MMA_K_BYTES = K_MAJOR ? 32 : 16 * 128;

/// Bytes from 64 rows of A to the next.
constexpr u32 MMA_M_BYTES = A_K_MAJOR ? 64 * 128 : BOX_BYTES;

/// Of a k-block what a consumer multiplies, as wgmma is told of it: its rows of A, and B.
struct KBlock {
  u64 a, b;
  bool is_there = false;  // its stage is known to be full

  __device__ __forceinline__ KBlock(u32 smem_a, u32 smem_b)
      : a(wgmma_descriptor(wgmma_address(smem_a))), b(wgmma_descriptor(wgmma_address(smem_b))) {}
};

/// Multiplies 64 rows of a k-block, of which `down` times as many are before, into the accumulators of WIDTH columns,
/// `part` times as many of which are before.
template <int WIDTH>
__device__ __forceinline__ void multiply(const KBlock& k_block, int down, int part, bool accumulate,
                                         Accumulator (&accumulators)[BLOCK_N / 2]) {
  ptx::wgmma_k_block<!A_K_MAJOR, !B_K_MAJOR, MMA_K_BYTES<A_K_MAJOR> / 16, MMA_K_BYTES<B_K_MAJOR> / 16>(
      ElementA{}, ElementB{}, reinterpret_cast<Accumulator(&)[WIDTH / 2]>(accumulators[part * WIDTH / 2]),
      k_block.a + down * MMA_M_BYTES / 16, k_block.b + part * (WIDTH * 128 / 16), accumulate);
}

/// wgmma_wait_group of a number that unrolled loops make a constant.
__device__ __forceinline__ void wait_for_all_but(int pending) {
  if (pending == 0)
    ptx::wgmma_wait_group<0>();
  else if (pending == 1)
    ptx::wgmma_wait_group<1>();
  else if (pending == 2)
    ptx::wgmma_wait_group<2>();
  else
    ptx::wgmma_wait_group<3>();
}

/// Of columns, or of 64 rows each, as a constant.
template <int COUNT_OF>
struct Constant {
  static constexpr int value = COUNT_OF;
};

/// The accumulators of 64 rows of a consumer's, of which `down` times as many are before.
__device__ __forceinline__ auto& of_rows(Accumulator (&of_tile)[COUNT], int down) {
  return reinterpret_cast<Accumulator(&)[BLOCK_N / 2]>(of_tile[down * BLOCK_N / 2]);
}

/// What adds up the products of MMAS times 64 rows and WIDTH columns of a tile's k-blocks, from the state of the
/// pipeline on. `release` is given the empty barrier of each stage that has been read, `between` the number of each
/// k-block that is being multiplied; `scales` are those of blocks of k, or nothing; `k_count` is what there is of k.
template <int WIDTH, int MMAS, typename Release, typename Between, typename OfBlocks>
struct TileProducts {
  static constexpr int AT_ONCE = MMAS < MMAS_AT_ONCE ? MMAS : MMAS_AT_ONCE;
  static constexpr int PARTS = MMAS * COLUMN_PARTS, PARTS_AT_ONCE = AT_ONCE * COLUMN_PARTS;  // of a k-block, promoted
  // Single-scaled sums, which are done in half the instructions, have shown no gain (tools/results/NOTES.md, 47).
  static constexpr bool PEEKS = HAS_BLOCK_SCALES;

  const SharedMemory& smem;
  u32 consumer, thread, first_row;
  int k_blocks, k_count;
  PipelineState& state;
  const Release& release;
  const Between& between;
  OfBlocks& scales;
  u32& turn;  // parity that ends the wait for the next one
  Accumulator (&accumulators)[COUNT];

  __device__ __forceinline__ KBlock next_k_block() const {
    return {smem.a(state.stage) + first_row / 64 * MMA_M_BYTES, smem.b(state.stage)};
  }
  /// The same, which may be there already. Found out before the last one's products are added up, nothing of it is left
  /// to do between these and its own.
  __device__ __forceinline__ KBlock peek() const {
    KBlock k_block = next_k_block();
    compute_low_now(k_block.a);
    compute_low_now(k_block.b);
    k_block.is_there = ptx::mbarrier_test_parity(smem.full(state.stage), state.phase);
    return k_block;
  }
  __device__ __forceinline__ void await(const KBlock& k_block, int step) const {
    if constexpr (ALONG_K) {
      const int k_left = k_count - step * BLOCK_K;
      if (k_left < BLOCK_K) clear_tail(smem, state, k_left, consumer, thread);
    }
    if (!k_block.is_there) ptx::mbarrier_wait_parity(smem.full(state.stage), state.phase);
  }
  /// The next one, once it is there.
  __device__ __forceinline__ KBlock await_k_block(int step) const {
    const KBlock k_block = next_k_block();
    await(k_block, step);
    return k_block;
  }
  /// Once the tile's last products have begun: the other consumer's may.
  __device__ __forceinline__ void pass_turn() const {
    if (PING_PONG && thread % 32 == 0) ptx::mbarrier_arrive(smem.turn(1 - consumer));
  }
  /// Promoting consumers multiply one after the other, and add while the others multiply: left to themselves they come
  /// to do the same at the same time, and the tensor cores wait.
  __device__ __forceinline__ void take_turn() const {
    if constexpr (TAKES_TURNS) {
      ptx::mbarrier_wait_parity(smem.promotion_turn(consumer), turn);
      turn ^= 1;
    }
  }
  __device__ __forceinline__ void give_turn() const {
    if (TAKES_TURNS && thread % 32 == 0)
      ptx::mbarrier_arrive(smem.promotion_turn(consumer + 1 == u32(CONSUMERS) ? 0 : consumer + 1));
  }
  /// Of a stage whose products, and scales, are in registers.
  __device__ __forceinline__ void release_read(u32 empty) const {
    if constexpr (HAS_BLOCK_SCALES) ptx::warp_sync();  // who releases the stage speaks for all who read it
    release(empty);
  }
  __device__ __forceinline__ void load_scales(int stage, int down) {
    if constexpr (HAS_BLOCK_SCALES) scales.template load<WIDTH>(smem, stage, down);
  }
  /// To the next k-block's, of rows once this one's are loaded, before the wait for a part. Both have a branch, which
  /// ptxas moves no addition across: of parts that are under way together the last one's wait would come before most of
  /// the additions of those before, while one at a time takes 1.14 times as long if it is not the first one's
  /// (256x128; tools/results/NOTES.md, 49).
  template <int PART>
  __device__ __forceinline__ void advance_scales() {
    if constexpr (HAS_BLOCK_SCALES && PART == (PARTS_AT_ONCE == 1 ? 0 : PARTS - 1)) scales.advance_columns();
    if constexpr (HAS_BLOCK_SCALES && PART == PARTS - 1) scales.advance_rows();
  }
  /// Adds 64 rows of a k-block's, and of these the COLUMNS from FIRST on.
  template <int FIRST = 0, int COLUMNS = WIDTH>
  __device__ __forceinline__ void promote(const Accumulator (&products)[BLOCK_N / 2], int down) {
    Accumulator(&sums)[BLOCK_N / 2] = of_rows(accumulators, down);
    if constexpr (HAS_BLOCK_SCALES) {
      scales.template add<FIRST, COLUMNS>(products, sums);
    } else {
#pragma unroll
      for (int i = FIRST / 2; i < (FIRST + COLUMNS) / 2; ++i) sums[i] = ptx::add(sums[i], products[i]);
    }
  }

  /// Of rows that nobody multiplies, which are never stored.
  __device__ __forceinline__ void clear_rest() {
#pragma unroll
    for (int i = MMAS * BLOCK_N / 2; i < COUNT; ++i) accumulators[i] = 0;
  }

  /// In f32, by wgmma.
  __device__ __forceinline__ void add() {
    clear_rest();
    u32 previous = 0;
#pragma unroll 1
    for (int step = 0; step < k_blocks; ++step) {
      const KBlock k_block = await_k_block(step);
      ptx::wgmma_fence();
#pragma unroll
      for (int down = 0; down < MMAS; ++down) multiply<WIDTH>(k_block, down, 0, step > 0, of_rows(accumulators, down));
      ptx::wgmma_commit_group();
      between(step);
      ptx::wgmma_wait_group<1>();  // this k-block's group may run on, the previous one's stage is free
      if (step > 0) release(previous);
      previous = smem.empty(state.stage);
      state.advance();
    }
    pass_turn();
    ptx::wgmma_wait_group<0>();
    // What converts integers needs nothing else, and where nothing lies between it is moved up to before the wait.
    if constexpr (SAME<Accumulator, int>) {
#pragma unroll
      for (Accumulator& x : accumulators) ptx::compute_now(x);
    }
    release(previous);
  }

  /// Begins the products of a part of a k-block: of 64 rows, and of some columns.
  __device__ __forceinline__ void multiply_part(const KBlock& k_block, int part,
                                                Accumulator (&products)[AT_ONCE][BLOCK_N / 2]) const {
    const int down = part / COLUMN_PARTS;
    multiply<WIDTH / COLUMN_PARTS>(k_block, down, part % COLUMN_PARTS, false, products[down % AT_ONCE]);
    ptx::wgmma_commit_group();
  }

  /// Adds the products of one part after the other, of which as many are under way as there is room for.
  template <int PART = 0>
  __device__ __forceinline__ void promote_parts(const KBlock& k_block, Accumulator (&products)[AT_ONCE][BLOCK_N / 2],
                                                KBlock& next) {
    constexpr int DOWN = PART / COLUMN_PARTS, COLUMNS = WIDTH / COLUMN_PARTS, ACROSS = PART % COLUMN_PARTS;
    constexpr bool IS_LAST = PART == PARTS - 1;
    if (ACROSS == 0) load_scales(state.stage, DOWN);  // while the products are made
    advance_scales<PART>();
    wait_for_all_but(min_of(PARTS_AT_ONCE, PARTS - PART) - 1);
    if constexpr (IS_LAST) {
      release_read(smem.empty(state.stage));
      state.advance();
      if constexpr (PEEKS) next = peek();
    }
    promote<ACROSS * COLUMNS, COLUMNS>(products[DOWN % AT_ONCE], DOWN);
    if constexpr (!IS_LAST) {
      if constexpr (PART + PARTS_AT_ONCE < PARTS) {
        ptx::wgmma_fence();
        multiply_part(k_block, PART + PARTS_AT_ONCE, products);
      }
      promote_parts<PART + 1>(k_block, products, next);
    }
  }

  /// Promotes one k-block's products, a part after the other.
  __device__ __forceinline__ void promote_k_block(int step, KBlock& next) {
    const KBlock k_block = PEEKS ? next : next_k_block();
    await(k_block, step);
    Accumulator products[AT_ONCE][BLOCK_N / 2];
    take_turn();
    ptx::wgmma_fence();
#pragma unroll
    for (int part = 0; part < PARTS_AT_ONCE; ++part) multiply_part(k_block, part, products);
    give_turn();
    between(step);
    promote_parts(k_block, products, next);
  }

  /// Promotes those of several, of 64 rows: one k-block's while the next ones' are made. That none is on its way behind
  /// them is what ptxas asks for: it serialises wgmma whose products are read while others go on into the next
  /// iteration (C7514).
  __device__ __forceinline__ void promote_k_blocks(int step, KBlock& next) {
    Accumulator products[K_BLOCKS_AT_ONCE][BLOCK_N / 2];
    PipelineState read = state;
#pragma unroll
    for (int i = 0; i < K_BLOCKS_AT_ONCE; ++i) {
      const KBlock k_block = PEEKS && i == 0 ? next : next_k_block();
      await(k_block, step + i);
      if (i == 0) take_turn();
      ptx::wgmma_fence();
      multiply<WIDTH>(k_block, 0, 0, false, products[i]);
      ptx::wgmma_commit_group();
      between(step + i);
      state.advance();
    }
    give_turn();
#pragma unroll
    for (int i = 0; i < K_BLOCKS_AT_ONCE; ++i) {
      load_scales(read.stage, 0);
      if constexpr (HAS_BLOCK_SCALES) {
        scales.advance_columns();
        scales.advance_rows();
      }
      wait_for_all_but(K_BLOCKS_AT_ONCE - 1 - i);
      release_read(smem.empty(read.stage));
      read.advance();
      if (PEEKS && i == K_BLOCKS_AT_ONCE - 1) next = peek();
      promote(products[i], 0);
    }
  }

  __device__ __forceinline__ void add_promoted() {
#pragma unroll
    for (Accumulator& x : accumulators) x = 0;
    int step = 0;
    KBlock next = next_k_block();
    if constexpr (K_BLOCKS_AT_ONCE > 1) {
#pragma unroll 1
      for (; step + K_BLOCKS_AT_ONCE <= k_blocks; step += K_BLOCKS_AT_ONCE) promote_k_blocks(step, next);
    }
#pragma unroll 1
    for (; step < k_blocks; ++step) promote_k_block(step, next);
    pass_turn();
  }

  /// Of a consumer that has no rows: its part in the ring, and in turns.
  __device__ __forceinline__ void pass() {
#pragma unroll 1
    for (int step = 0; step < k_blocks;) {
      const int end = step + K_BLOCKS_AT_ONCE <= k_blocks ? step + K_BLOCKS_AT_ONCE : step + 1;
      for (; step < end; ++step) {
        ptx::mbarrier_wait_parity(smem.full(state.stage), state.phase);
        ptx::warp_sync();  // the lane that releases speaks for all who wait
        release(smem.empty(state.stage));
        state.advance();
      }
      take_turn();
      ptx::warp_sync();  // as wgmma does elsewhere: the lane that gives speaks for all who took
      give_turn();
    }
  }

  __device__ __forceinline__ void add_up() {
    if constexpr (PROMOTED)
      add_promoted();
    else
      add();
  }
};

/// Calls multiply(width) with the least of the widths from WIDTH on that has so many columns, a constant.
template <int WIDTH, typename Multiply>
__device__ __forceinline__ void with_width(int columns, const Multiply& multiply) {
  if constexpr (WIDTH >= BLOCK_N) {
    multiply(Constant<BLOCK_N>{});
  } else {
    if (columns <= WIDTH)
      multiply(Constant<WIDTH>{});
    else
      with_width<WIDTH + GROUP_STEP>(columns, multiply);
  }
}

}  // namespace jitgemm::device
