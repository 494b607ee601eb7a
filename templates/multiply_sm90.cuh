// How a consumer of the Hopper loop adds up the products of a tile's k-blocks: wgmma, and what promotes its sums.
#pragma once
#include "arguments.cuh"
#include "block_scales_sm90.cuh"
#include "group_ends_sm90.cuh"
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

  __device__ __forceinline__ KBlock(u32 smem_a, u32 smem_b)
      : a(wgmma_descriptor(wgmma_address(smem_a))), b(wgmma_descriptor(wgmma_address(smem_b))) {}
  /// The one that lies so many stages on.
  __device__ __forceinline__ KBlock operator+(int stages) const {
    KBlock other = *this;
    other.a += u32(stages) * u32(STAGE_BYTES / 16);
    other.b += u32(stages) * u32(STAGE_BYTES / 16);
    return other;
  }
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
/// k-block that is being multiplied, `behind_last` is called once all products have begun; `scales` are those of blocks
/// of k, or nothing; `k` is what there is of k.
template <int WIDTH, int MMAS, typename Release, typename Between, typename BehindLast, typename OfBlocks>
struct TileProducts {
  static constexpr int AT_ONCE = MMAS < MMAS_AT_ONCE ? MMAS : MMAS_AT_ONCE;
  static constexpr int PARTS = MMAS * COLUMN_PARTS;  // of a k-block, promoted
  // Of which so many are under way at a time, of one k-block or of two, and their products in so many buffers.
  static constexpr int BUFFERS = PARTS > 1 ? AT_ONCE : K_BLOCKS_AT_ONCE;
  static constexpr int PARTS_AT_ONCE = BUFFERS * COLUMN_PARTS;
  static constexpr bool HAS_COLUMN_SCALES = HAS_BLOCK_SCALES && SCALING_B == Scaling::block_1x128;
  // A k-block is waited for, and its scales are loaded, once all of the one before it is under way, or else just before
  // it is multiplied, or takes its turn to.
  static constexpr bool PREPARES_EARLY =
      PARTS_AT_ONCE == 1 && (PARTS > 1 || (HAS_BLOCK_SCALES && !HAS_COLUMN_SCALES && !TAKES_TURNS));
  // But those of blocks not of a pass's first k-blocks, up to this one: a tile's first are just on their way.
  static constexpr int LAST_LOADED_BEHIND = TAKES_TURNS ? -1 : (PARTS_AT_ONCE - 1) / PARTS;
  // Straight code of the most k-blocks: ptxas moves addresses ahead in it, for which there are few registers beside
  // scales of columns or of pairs, or what a split tile has to keep.
  static constexpr int longest_pass() {
    if (HAS_COLUMN_SCALES) return PARTS > 1 || WIDTH > 64 ? 1 : WIDTH > 32 ? 2 : 4;
    const bool keeps_more = splits_tiles(PARTITION) || ROW_FOLD * COLUMN_FOLD > 1;
    if (HAS_BLOCK_SCALES && keeps_more && (PARTS > 1 || PARTS_AT_ONCE == 1)) return 1;
    // Beside a loop for each width of a group's tiles ptxas has no registers for more (C7512).
    if (NARROWS && !HAS_BLOCK_SCALES) return BLOCK_N <= 64 ? 4 : 1;
    return PARTS == 1 && WIDTH <= 64 ? 16 : 8;
  }
  using Factors = typename OfBlocks::Factors;
  using Products = Accumulator[BUFFERS][BLOCK_N / 2];

  const SharedMemory& smem;
  u32 consumer, thread, first_row;
  int k_blocks;
  TileK k;
  PipelineState& state;
  const Release& release;
  const Between& between;
  const BehindLast& behind_last;
  OfBlocks& scales;
  u32& turn;  // parity that ends the wait for the next one
  Accumulator (&accumulators)[COUNT];

  __device__ __forceinline__ KBlock next_k_block() const {
    return {smem.a(state.stage) + first_row / 64 * MMA_M_BYTES, smem.b(state.stage)};
  }
  __device__ __forceinline__ void await(const PipelineState& its, int step) const {
    if constexpr (ALONG_K) {
      const OwnK own{step == 0 ? k.before : 0, k.count - step * BLOCK_K};
      if (!own.is_all()) clear_ends(smem, its, own, consumer, thread);
    }
    ptx::mbarrier_wait_parity(smem.full(its.stage), its.phase);
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
  /// Adds 64 rows of a k-block's, and of these the COLUMNS from FIRST on.
  template <int FIRST = 0, int COLUMNS = WIDTH>
  __device__ __forceinline__ void promote(const Accumulator (&products)[BLOCK_N / 2], int down, Factors& factors) {
    Accumulator(&sums)[BLOCK_N / 2] = of_rows(accumulators, down);
    if constexpr (HAS_BLOCK_SCALES) {
      scales.template add<FIRST, COLUMNS>(factors, products, sums);
    } else {
#pragma unroll
      for (int i = FIRST / 2; i < (FIRST + COLUMNS) / 2; ++i) {
        sums[i] = ptx::add(sums[i], products[i]);
        ptx::compute_now(sums[i]);
      }
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
      const KBlock k_block = next_k_block();
      await(state, step);
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
    behind_last();
    ptx::wgmma_wait_group<0>();
    // What converts integers needs nothing else, and where nothing lies between it is moved up to before the wait.
    if constexpr (SAME<Accumulator, int>) {
#pragma unroll
      for (Accumulator& x : accumulators) ptx::compute_now(x);
    }
    release(previous);
  }

  /// What a pass of several k-blocks goes through, in units: a unit is one part of one k-block.
  struct Pass {
    KBlock first;  // of the ring
    int step;      // the number of the pass's first k-block
    // Of an even k-block of the pass, and of the odd one beside it:
    PipelineState stages[2];
    Factors factors[2][MMAS];
    Products products;

    __device__ __forceinline__ void make_odd_even() {
      stages[0] = stages[1];
#pragma unroll
      for (int down = 0; down < MMAS; ++down) factors[0][down] = factors[1][down];
    }
  };

  /// Waits for the ith k-block from the pass's first on, which may be the next one's first, and asks for its scales:
  /// behind wgmma, LDS and shuffles wait for what these read of shared memory, some 150 clocks (tools/results/NOTES.md,
  /// 50). ptxas moves no shuffle across a branch, which the wait has.
  __device__ __forceinline__ void prepare(Pass& pass, int i, bool is_first = false) {
    const PipelineState its = pass.stages[i % 2] = state;
    state.advance();
    const bool of_blocks = HAS_BLOCK_SCALES && !is_first && i > LAST_LOADED_BEHIND;
    if constexpr (HAS_BLOCK_SCALES && PREPARES_EARLY)
      if (of_blocks) scales.template load_of_blocks<WIDTH>(i, pass.factors[i % 2]);
    await(its, pass.step + i);
    if constexpr (HAS_BLOCK_SCALES) scales.load_of_each_row(smem, its.stage, pass.factors[i % 2]);
    if constexpr (HAS_BLOCK_SCALES && !PREPARES_EARLY)
      if (of_blocks) scales.template load_of_blocks<WIDTH>(i, pass.factors[i % 2]);
  }

  /// Begins the products of a unit: of 64 rows, and of some columns.
  template <int UNIT, int K_BLOCKS>
  __device__ __forceinline__ void begin(Pass& pass) {
    constexpr int I = UNIT / PARTS, PART = UNIT % PARTS, DOWN = PART / COLUMN_PARTS;
    if constexpr (PART == 0) {
      if constexpr (!PREPARES_EARLY) prepare(pass, I);
      take_turn();
    }
    ptx::wgmma_fence();
    multiply<WIDTH / COLUMN_PARTS>(pass.first + pass.stages[I % 2].stage, DOWN, PART % COLUMN_PARTS, false,
                                   pass.products[PARTS > 1 ? DOWN % AT_ONCE : I % BUFFERS]);
    ptx::wgmma_commit_group();
    if constexpr (PART == 0) {
      give_turn();
      between(pass.step + I);
    }
    if constexpr (PREPARES_EARLY && PART == PARTS - 1) {
      constexpr bool IS_LAST = I + 1 == K_BLOCKS;
      if (!IS_LAST || pass.step + K_BLOCKS < k_blocks) prepare(pass, I + 1, IS_LAST);
    }
  }

  /// Adds the products of a unit.
  template <int UNIT, int K_BLOCKS>
  __device__ __forceinline__ void finish(Pass& pass) {
    constexpr int I = UNIT / PARTS, PART = UNIT % PARTS, DOWN = PART / COLUMN_PARTS, ACROSS = PART % COLUMN_PARTS;
    constexpr int COLUMNS = WIDTH / COLUMN_PARTS;
    const int stage = pass.stages[I % 2].stage;
    if constexpr (HAS_BLOCK_SCALES && PART == 0) {
      if constexpr (I <= LAST_LOADED_BEHIND) scales.template load_of_blocks<WIDTH>(I, pass.factors[I % 2]);
      scales.template load_of_each_column<WIDTH>(smem, stage, pass.factors[I % 2]);
    }
    constexpr int BEGUN_BEHIND = min_of(PARTS_AT_ONCE, K_BLOCKS * PARTS - UNIT) - 1;
    ptx::wgmma_wait_group<BEGUN_BEHIND>();
    if constexpr (PART == PARTS - 1) release_read(smem.empty(stage));
    promote<ACROSS * COLUMNS, COLUMNS>(pass.products[PARTS > 1 ? DOWN % AT_ONCE : I % BUFFERS], DOWN,
                                       pass.factors[I % 2][DOWN]);
  }

  /// All units from UNIT on, of which PARTS_AT_ONCE - 1 have begun, and before unit 0 not yet. What adds up a unit's
  /// products stands before what makes others in the same registers, and so ptxas can't put it off.
  template <int UNIT, int K_BLOCKS>
  __device__ __forceinline__ void promote_units(Pass& pass) {
    if constexpr (UNIT < K_BLOCKS * PARTS) {
      if constexpr (UNIT + PARTS_AT_ONCE <= K_BLOCKS * PARTS) begin<UNIT + PARTS_AT_ONCE - 1, K_BLOCKS>(pass);
      if constexpr (UNIT >= 0) finish<UNIT, K_BLOCKS>(pass);
      promote_units<UNIT + 1, K_BLOCKS>(pass);
    }
  }

  /// Promotes K_BLOCKS, as long as there are as many, of which the first has been prepared. That none is on its way
  /// behind them is what ptxas asks for: it serialises wgmma whose products are read while others go on into the next
  /// iteration (C7514).
  template <int K_BLOCKS>
  __device__ __forceinline__ void promote_passes(Pass& pass) {
#pragma unroll 1
    for (; pass.step + K_BLOCKS <= k_blocks; pass.step += K_BLOCKS) {
      // As if it were computed here, so that no sum of it and a constant is kept in a register outside the loop.
      compute_low_now(pass.first.a);
      compute_low_now(pass.first.b);
      if constexpr (HAS_BLOCK_SCALES) scales.begin_pass(K_BLOCKS);
      promote_units<1 - PARTS_AT_ONCE, K_BLOCKS>(pass);
      if constexpr (HAS_BLOCK_SCALES) scales.end_pass();
      if constexpr (PREPARES_EARLY && K_BLOCKS % 2 == 1) pass.make_odd_even();
    }
  }

  __device__ __forceinline__ void add_promoted() {
#pragma unroll
    for (Accumulator& x : accumulators) x = 0;
    Pass pass{{smem.a(0) + first_row / 64 * MMA_M_BYTES, smem.b(0)}, 0};
    if (PREPARES_EARLY && k_blocks > 0) prepare(pass, 0);
    if constexpr (longest_pass() >= 16) promote_passes<16>(pass);
    if constexpr (longest_pass() >= 8) promote_passes<8>(pass);
    if constexpr (longest_pass() >= 4) promote_passes<4>(pass);
    if constexpr (longest_pass() == 2) promote_passes<2>(pass);
    promote_passes<1>(pass);
    pass_turn();
    behind_last();
  }

  /// Of a consumer that has no rows: its part in the ring.
  __device__ __forceinline__ void pass() {
#pragma unroll 1
    for (int step = 0; step < k_blocks; ++step) {
      ptx::mbarrier_wait_parity(smem.full(state.stage), state.phase);
      ptx::warp_sync();  // the lane that releases speaks for all who wait
      release(smem.empty(state.stage));
      state.advance();
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
