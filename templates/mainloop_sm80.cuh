// The portable main loop, sm_80 and newer: cp.async fills a ring of STAGES k-steps in shared memory, ldmatrix and mma.sync
// consume it. The ring runs on from one tile to the next, so that the next tile loads while this one is stored. Operands
// that cp.async cannot address (2-byte alignment) go through registers into the same ring.

namespace jitgemm::device {

constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr int K16_STEPS = BLOCK_K / 16;  // mma depth

constexpr int ACCUMULATORS = WARP_M * WARP_N / 32;       // a thread

// Accumulators, two sets of fragments and what addresses take, of 65536 registers an SM. On Hopper one warp issues an mma
// every 22 cycles where its tensor core takes 6, so it is several warps that keep it busy.
constexpr int FRAGMENT_REGISTERS = 2 * (WARP_M + WARP_N) / 4;
constexpr int HELD_REGISTERS = ((ALIGN_A == 2) * BLOCK_M + (ALIGN_B == 2) * BLOCK_N) * BLOCK_K / 2 / THREADS;
constexpr int REGISTERS = ACCUMULATORS + FRAGMENT_REGISTERS + HELD_REGISTERS + 56;
constexpr int BLOCKS_PER_SM = REGISTERS * THREADS > 65536 ? 1 : 65536 / (REGISTERS * THREADS);

static_assert(BLOCK_K == 32 || BLOCK_K == 64, "block_k is 32 or 64");
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "a warp's tile is a multiple of 16 x 16");
static_assert(STAGES >= 2, "at least 2 stages");

/// OUTER rows of INNER contiguous elements in shared memory, swizzled so that ldmatrix reads 8 rows without a bank conflict.
template <int OUTER, int INNER>
struct SmemTile {
  static constexpr int ROW_BYTES = INNER * 2, CHUNKS = INNER / 8;  // of 16 bytes
  static constexpr int BYTES = OUTER * ROW_BYTES;

  static __device__ __forceinline__ u32 offset(u32 row, u32 chunk) {
    const u32 phase = ROW_BYTES >= 128 ? row % 8 : row / (128 / ROW_BYTES) % CHUNKS;
    return row * ROW_BYTES + (chunk ^ phase) * 16;
  }
};

template <int BLOCK, bool K_MAJOR>
struct OperandTile : SmemTile<BLOCK, BLOCK_K> {};
template <int BLOCK>
struct OperandTile<BLOCK, false> : SmemTile<BLOCK_K, BLOCK> {};

using TileA = OperandTile<BLOCK_M, A_K_MAJOR>;
using TileB = OperandTile<BLOCK_N, B_K_MAJOR>;
constexpr int SMEM_ALIGN = 512;  // a multiple of the longest row
constexpr int STAGE_BYTES = TileA::BYTES + TileB::BYTES;

/// Copies one operand's part of successive k-steps into shared memory, zeros beyond the matrix.
template <int BLOCK, bool K_MAJOR, int ALIGN>
struct OperandLoader {
  using Tile = OperandTile<BLOCK, K_MAJOR>;
  static constexpr int COUNT = Tile::BYTES / 16 / THREADS;  // chunks a thread
  static constexpr int ROW_STEP = THREADS / Tile::CHUNKS;   // rows between a thread's chunks
  static_assert(COUNT * THREADS * 16 == Tile::BYTES && ROW_STEP * Tile::CHUNKS == THREADS,
                "every thread copies the same number of 16-byte chunks");

  const long long& ld;  // elements
  const char* source;   // this thread's first chunk of the next k-step
  int mn_left;          // M (N) from this thread's first chunk on, elements
  U32x4 held[ALIGN == 2 ? COUNT : 1];

  explicit __device__ __forceinline__ OperandLoader(const long long& leading_dimension) : ld(leading_dimension) {}

  static __device__ __forceinline__ u32 row() { return ptx::thread_index() / Tile::CHUNKS; }
  static __device__ __forceinline__ u32 chunk() { return ptx::thread_index() % Tile::CHUNKS; }

  /// To element (mn, k) of an operand with `mn_extent` rows (columns).
  __device__ __forceinline__ void seek(const void* matrix, int mn, int mn_extent, int k) {
    const int first_row = (K_MAJOR ? mn : k) + row(), first_column = (K_MAJOR ? k : mn) + chunk() * 8;
    mn_left = mn_extent - (K_MAJOR ? first_row : first_column);
    source = static_cast<const char*>(matrix) + (first_row * ld + first_column) * 2;
  }

  __device__ __forceinline__ void advance() { source += BLOCK_K * (K_MAJOR ? 1 : ld) * 2; }

  /// Elements of this thread's ith chunk that are in the matrix, when K ends `k_left` elements on; none if negative.
  __device__ __forceinline__ int valid_elements(int i, int k_left) const {
    const int rows = K_MAJOR ? mn_left : k_left - int(row()), columns = K_MAJOR ? k_left - int(chunk() * 8) : mn_left;
    return i * ROW_STEP >= rows ? 0 : columns < 8 ? columns : 8;
  }

  /// Where this thread's ith chunk goes in a tile. The swizzle repeats every 8 rows.
  static __device__ __forceinline__ u32 offset(int i) {
    if constexpr (ROW_STEP % 8 == 0)
      return Tile::offset(row(), chunk()) + i * ROW_STEP * Tile::ROW_BYTES;
    else
      return Tile::offset(row() + i * ROW_STEP, chunk());
  }

  /// `valid` elements at `from`, and zeros up to 8.
  static __device__ __forceinline__ U32x4 load_elements(const char* from, int valid) {
    u16 x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = i < valid ? ptx::ld_global_u16(from + 2 * i) : u16(0);
    return {x[0] | u32(x[1]) << 16, x[2] | u32(x[3]) << 16, x[4] | u32(x[5]) << 16, x[6] | u32(x[7]) << 16};
  }

  /// A row may end within what one cp.async reads, and at the end of the memory.
  static __device__ __forceinline__ void copy(u32 to, const char* from, int valid) {
    if (2 * valid % ALIGN == 0) {
#pragma unroll
      for (int e = 0; e < 16; e += ALIGN) ptx::cp_async<ALIGN>(to + e, from + e, e < 2 * valid);
    } else {
      ptx::st_shared_v4(to, load_elements(from, valid));
    }
  }

  /// Starts the copy. INTERIOR promises that the whole tile is inside the matrix, which saves ten instructions a chunk.
  template <bool INTERIOR>
  __device__ __forceinline__ void begin(u32 smem, int k_left) {
    const char* from = source;
    if constexpr (ALIGN == 2) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i, from += ROW_STEP * ld * 2) {
        held[i] = load_elements(from, INTERIOR ? 8 : valid_elements(i, k_left));
      }
    } else if constexpr (INTERIOR) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i, from += ROW_STEP * ld * 2) copy(smem + offset(i), from, 8);
    } else {
#pragma unroll 1  // a loop is not turned into predicated instructions that the interior would issue, too
      for (int i = 0; i < COUNT; ++i, from += ROW_STEP * ld * 2) copy(smem + offset(i), from, valid_elements(i, k_left));
    }
  }

  /// The part of the copy that waits for begin()'s loads.
  __device__ __forceinline__ void finish(u32 smem) {
    if constexpr (ALIGN == 2) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) ptx::st_shared_v4(smem + offset(i), held[i]);
    }
  }
};

/// The work that the loader has begun and the multiplication not yet ended, in shared memory to spare registers. Thread 0
/// writes. The loader is STAGES k-steps ahead at most.
struct WorkQueue {
  static constexpr int ENTRY_BYTES = 32, BYTES = (STAGES + 1) * ENTRY_BYTES;
  u32 smem;

  /// Entries go by their address.
  __device__ __forceinline__ u32 next(u32 entry) const {
    return entry + ENTRY_BYTES == smem + BYTES ? smem : entry + ENTRY_BYTES;
  }

  /// An empty range of k-steps ends the queue.
  static __device__ __forceinline__ void write(u32 entry, const Work& work) {
    if (ptx::thread_index() != 0) return;
    ptx::st_shared_v4(entry, {u32(work.k_begin), u32(work.k_end), 0, 0});
    ptx::st_shared_v4(entry + 16, {u32(work.tile), u32(work.peers), u32(work.peer), 0});
  }

  static __device__ __forceinline__ int k_steps(u32 entry) {
    const U32x4 x = ptx::ld_shared_v4(entry);
    return int(x.y - x.x);
  }
  static __device__ __forceinline__ Work read(u32 entry) {
    const U32x4 k = ptx::ld_shared_v4(entry), x = ptx::ld_shared_v4(entry + 16);
    return {int(x.x), int(k.x), int(k.y), int(x.y), int(x.z)};
  }
};

/// Runs ahead of the multiplication through this program's work, one k-step and one commit group at a time.
struct StageLoader {
  const Arguments& args;
  WorkQueue queue;
  WorkList<PARTITION> list;
  u32 entry;     // of the queue, the current work's
  int k, k_end;  // next k-step and the end of the current work; equal when there is no more
  bool interior;  // in M and N
  OperandLoader<BLOCK_M, A_K_MAJOR, ALIGN_A> a;
  OperandLoader<BLOCK_N, B_K_MAJOR, ALIGN_B> b;

  __device__ __forceinline__ StageLoader(const Arguments& arguments, const WorkQueue& work_queue)
      : args(arguments),
        queue(work_queue),
        list{arguments.decomposition, int(ptx::block_index())},
        entry(work_queue.smem),
        a(arguments.lda),
        b(arguments.ldb) {
    Work work{};
    begin_work(work, list.first(work));
  }

  __device__ __forceinline__ void next_work() {
    ptx::bar_sync(0, THREADS);  // thread 0 has written the entry
    Work work = WorkQueue::read(entry);
    entry = queue.next(entry);
    begin_work(work, list.next(work));
  }

  __device__ __forceinline__ void begin_work(Work& work, bool exists) {
    if (exists) {
      const TileIndex tile = raster(work.tile, args.decomposition.tiles_m, args.decomposition.tiles_n, GROUP_M);
      a.seek(args.a, tile.m * BLOCK_M, args.m, work.k_begin * BLOCK_K);
      b.seek(args.b, tile.n * BLOCK_N, args.n, work.k_begin * BLOCK_K);
      interior = (tile.m + 1) * BLOCK_M <= args.m && (tile.n + 1) * BLOCK_N <= args.n;
    } else {
      work.k_begin = work.k_end = 0;
    }
    k = work.k_begin;
    k_end = work.k_end;
    WorkQueue::write(entry, work);
  }

  /// Starts the copy of the next k-step to a stage of the ring.
  __device__ __forceinline__ void begin(u32 stage) {
    if (k < k_end) {
      const int k_left = args.k - k * BLOCK_K;
      if (interior && k_left >= BLOCK_K) {
        a.template begin<true>(stage, k_left);
        b.template begin<true>(stage + TileA::BYTES, k_left);
      } else {
        a.template begin<false>(stage, k_left);
        b.template begin<false>(stage + TileA::BYTES, k_left);
      }
    }
    ptx::cp_async_commit_group();  // an empty one too: the waits count groups
  }

  /// The part of the copy that waits for begin()'s loads; then on to the k-step after it. When there is no more, a stage that
  /// nobody reads gets what nobody needs.
  __device__ __forceinline__ void finish(u32 stage) {
    a.finish(stage);
    b.finish(stage + TileA::BYTES);
    if (++k == k_end) {
      next_work();
    } else {
      a.advance();
      b.advance();
    }
  }
};

/// Reads a warp's part of one operand as mma fragments: COUNT blocks of 16 (M or N) x 16 (K), each of four 8 x 8 quarters, a
/// register each. mma wants A's quarters M first, and B's K first: then each half of a block is the pair of registers that
/// one n8 step takes.
template <int BLOCK, int EXTENT, bool K_MAJOR, bool K_FIRST>
struct FragmentReader {
  using Tile = OperandTile<BLOCK, K_MAJOR>;
  static constexpr int COUNT = EXTENT / 16;
  u32 base;  // of this lane's row in block 0, k 0

  explicit __device__ __forceinline__ FragmentReader(u32 origin) {
    const u32 lane = ptx::thread_index() % 32, low = lane / 8 % 2, high = lane / 16;  // of the quarter's number
    const u32 mn8 = K_FIRST ? high : low, k8 = K_FIRST ? low : high;
    base = K_MAJOR ? Tile::offset(origin + mn8 * 8 + lane % 8, k8) : Tile::offset(k8 * 8 + lane % 8, origin / 8 + mn8);
  }

  /// The swizzle is an exclusive or, so that a step along a row, of 2 chunks, is one too, on any address whose tile begins at
  /// a multiple of the row; 16 rows on it is the same.
  __device__ __forceinline__ void load(u32 tile, int k16, u32 (&x)[COUNT][4]) const {
    const u32 first = tile + base;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if constexpr (K_MAJOR)
        ptx::ldmatrix_x4((first ^ (k16 * 32)) + i * 16 * Tile::ROW_BYTES, x[i]);
      else
        ptx::ldmatrix_x4_trans((first ^ (i * 32)) + k16 * 16 * Tile::ROW_BYTES, x[i]);
    }
  }
};

struct Multiplier {
  FragmentReader<BLOCK_M, WARP_M, A_K_MAJOR, false> reader_a;
  FragmentReader<BLOCK_N, WARP_N, B_K_MAJOR, true> reader_b;
  u32 a[2][WARP_M / 16][4], b[2][WARP_N / 16][4];

  __device__ __forceinline__ Multiplier(u32 warp_m, u32 warp_n) : reader_a(warp_m * WARP_M), reader_b(warp_n * WARP_N) {}

  __device__ __forceinline__ void load(u32 smem, int k16) {
    reader_a.load(smem, k16, a[k16 % 2]);
    reader_b.load(smem + TileA::BYTES, k16, b[k16 % 2]);
  }

  __device__ __forceinline__ void multiply(int k16, float (&accumulators)[ACCUMULATORS]) {
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
      for (int j = 0; j < WARP_N / 8; ++j) {
        const u32(&n16)[4] = b[k16 % 2][j / 2];
        ptx::mma_m16n8k16(Element{}, reinterpret_cast<float(&)[4]>(accumulators[(i * (WARP_N / 8) + j) * 4]), a[k16 % 2][i],
                          n16[j % 2 * 2], n16[j % 2 * 2 + 1]);
      }
  }
};

/// (row, column) is that of this thread's first accumulator.
template <bool INTERIOR>
__device__ __forceinline__ void store_warp_tile(const Arguments& args, int row, int column,
                                                const float (&accumulators)[ACCUMULATORS]) {
#pragma unroll
  for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
    for (int j = 0; j < WARP_N / 8; ++j) {
      const float* x = accumulators + (i * (WARP_N / 8) + j) * 4;
      store_to_d<INTERIOR>(args, row + i * 16, column + j * 8, x[0], x[1]);
      store_to_d<INTERIOR>(args, row + i * 16 + 8, column + j * 8, x[2], x[3]);
    }
}

/// The ring of stages, which go by their address.
struct Ring {
  u32 smem;

  __device__ __forceinline__ u32 next(u32 stage) const {
    return stage == smem + (STAGES - 1) * STAGE_BYTES ? smem : stage + STAGE_BYTES;
  }
  __device__ __forceinline__ u32 previous(u32 stage) const {
    return stage == smem ? smem + (STAGES - 1) * STAGE_BYTES : stage - STAGE_BYTES;
  }
};

__device__ __forceinline__ void gemm(const Arguments& args) {
  const u32 smem = (ptx::dynamic_smem() + SMEM_ALIGN - 1) / SMEM_ALIGN * SMEM_ALIGN;
  const Ring ring{smem};
  const WorkQueue queue{smem + STAGES * STAGE_BYTES};
  const u32 warp = ptx::thread_index() / 32, lane = ptx::thread_index() % 32;
  const u32 warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;

  StageLoader loader(args, queue);
#pragma unroll 1
  for (int i = 0; i < STAGES - 1; ++i) {
    loader.begin(smem + i * STAGE_BYTES);
    loader.finish(smem + i * STAGE_BYTES);
  }

  const auto await_next_stage = [] {
    ptx::cp_async_wait_group<STAGES - 2>();  // it has landed for this thread,
    ptx::bar_sync(0, THREADS);               // for all, and all are done with the one before it, which is loaded next
  };
  await_next_stage();
  Multiplier multiplier(warp_m, warp_n);
  u32 stage = smem;
  for (u32 entry = queue.smem; WorkQueue::k_steps(entry) > 0; entry = queue.next(entry)) {
    multiplier.load(stage, 0);
    float accumulators[ACCUMULATORS];
#pragma unroll
    for (float& x : accumulators) x = 0.0f;

#pragma unroll 1
    for (int k_steps = WorkQueue::k_steps(entry); k_steps > 0; --k_steps) {
#pragma unroll
      for (int k16 = 0; k16 < K16_STEPS; ++k16) {
        if (k16 == 0) loader.begin(ring.previous(stage));
        if (k16 < K16_STEPS - 1) {
          multiplier.load(stage, k16 + 1);
        } else {
          await_next_stage();
          multiplier.load(ring.next(stage), 0);  // after a tile's last k-step for nothing: a branch would cost more
        }
        multiplier.multiply(k16, accumulators);
        if (k16 == K16_STEPS - 2) loader.finish(ring.previous(stage));
      }
      stage = ring.next(stage);
    }

    const auto work = [&] { return WorkQueue::read(entry); };
    if (!reduce_peers<1, THREADS>(args, work, 0, ptx::thread_index(), 0, accumulators)) continue;
    const TileIndex tile = raster(work().tile, args.decomposition.tiles_m, args.decomposition.tiles_n, GROUP_M);
    const int row = tile.m * BLOCK_M + warp_m * WARP_M, column = tile.n * BLOCK_N + warp_n * WARP_N;
    if (row + WARP_M <= args.m && column + WARP_N <= args.n)
      store_warp_tile<true>(args, row + lane / 4, column + lane % 4 * 2, accumulators);
    else
      store_warp_tile<false>(args, row + lane / 4, column + lane % 4 * 2, accumulators);
  }
}

}  // namespace jitgemm::device
