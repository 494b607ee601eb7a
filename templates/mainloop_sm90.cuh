// The Hopper main loop, sm_90a: one thread of a producer warpgroup fills a ring of STAGES k-steps by TMA, two consumer
// warpgroups multiply it with wgmma, 64 rows of the tile each, and store D by TMA while the producer is already at the next
// tile. A pair of mbarriers a stage passes it back and forth.

namespace jitgemm::device {

constexpr int CONSUMERS = WARPS_M * WARPS_N / 4;  // warpgroups
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int BLOCKS_PER_SM = 1;
constexpr int COUNT = 64 * BLOCK_N / 128;  // accumulators a thread

static_assert(BLOCK_K == 64, "block_k is 64: one 128-byte swizzled row");
static_assert(CONSUMERS == 2 && BLOCK_M == 64 * CONSUMERS, "block_m is 64 rows for each of two consumer warpgroups");
static_assert(BLOCK_N == 128 || BLOCK_N == 256, "block_n is 128 or 256");
static_assert(ALIGN_A == 16 && ALIGN_B == 16, "TMA loads need 16-byte aligned rows");
static_assert(STAGES >= 2, "at least 2 stages");

// Of 65536 registers an SM, 3 warpgroups x 128 threads: 40 + 2 x 232 = 504 a thread of each.
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;

// Shared memory. TMA boxes are 64 elements (128 bytes) wide and swizzled. A K-major tile is one box of BLOCK_M (BLOCK_N)
// rows; an M-major (N-major) tile is a box of BLOCK_K rows for each 64 of M (N).
constexpr int BOX = 64;
constexpr int A_BYTES = BLOCK_M * BLOCK_K * 2, B_BYTES = BLOCK_N * BLOCK_K * 2;
constexpr int BOX_BYTES = BOX * BLOCK_K * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr bool TMA_STORE = ALIGN_D == 16;  // it clips a row at 16 bytes, not at an element
constexpr int D_BOX_COLUMNS = 128 / int(sizeof(ElementD));
constexpr int D_BOX_BYTES = 64 * 128;
constexpr int D_BUFFERS = 2;  // of one box, a consumer

struct SharedMemory {
  u32 base;  // 1024-byte aligned, as the swizzle needs

  __device__ __forceinline__ u32 a(int stage) const { return base + stage * STAGE_BYTES; }
  __device__ __forceinline__ u32 b(int stage) const { return a(stage) + A_BYTES; }
  __device__ __forceinline__ u32 d(u32 consumer, int buffer) const {
    return base + STAGES * STAGE_BYTES + (consumer * D_BUFFERS + buffer) * D_BOX_BYTES;
  }
  __device__ __forceinline__ u32 full(int stage) const {
    return base + STAGES * STAGE_BYTES + (TMA_STORE ? CONSUMERS * D_BUFFERS * D_BOX_BYTES : 0) + stage * 16;
  }
  __device__ __forceinline__ u32 empty(int stage) const { return full(stage) + 8; }
};

/// Position in the ring; `parity` is that of the current pass.
struct RingPosition {
  int stage = 0;
  u32 parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ TileIndex tile_of(const Arguments& args, const Work& work) {
  return raster(work.tile, args.decomposition.tiles_m, args.decomposition.tiles_n, GROUP_M);
}

template <int BLOCK, bool K_MAJOR>
__device__ __forceinline__ void load_operand(u32 smem, const TensorMap* map, u32 barrier, int mn, int k) {
  if constexpr (K_MAJOR) {
    ptx::tma_load_2d(smem, map, barrier, k, mn);
  } else {
#pragma unroll
    for (int i = 0; i < BLOCK / BOX; ++i) ptx::tma_load_2d(smem + i * BOX_BYTES, map, barrier, mn + i * BOX, k);
  }
}

/// One thread.
__device__ __forceinline__ void produce(const Arguments& args, const SharedMemory& smem) {
  const WorkList<PARTITION> list{args.decomposition, int(ptx::block_index())};
  RingPosition position;
  Work work;
  for (bool more = list.first(work); more; more = list.next(work)) {
    const TileIndex tile = tile_of(args, work);
    for (int k = work.k_begin; k < work.k_end; ++k) {
      const u32 full = smem.full(position.stage);
      ptx::mbarrier_wait_parity(smem.empty(position.stage), position.parity ^ 1);  // passes in the first pass
      ptx::mbarrier_arrive_expect_tx(full, STAGE_BYTES);
      load_operand<BLOCK_M, A_K_MAJOR>(smem.a(position.stage), &args.map_a, full, tile.m * BLOCK_M, k * BLOCK_K);
      load_operand<BLOCK_N, B_K_MAJOR>(smem.b(position.stage), &args.map_b, full, tile.n * BLOCK_N, k * BLOCK_K);
      position.advance();
    }
  }
}

/// Describes a 128-byte swizzled operand to wgmma (PTX ISA, "Matrix descriptor"): 8-row groups lie 1024 bytes apart (stride
/// offset), and of an M- or N-major operand the next 64 elements of M or N one box on (leading offset; ignored otherwise).
__device__ __forceinline__ u64 wgmma_descriptor(u32 smem) {
  constexpr u64 SWIZZLE_128B = 1ull << 62;
  return SWIZZLE_128B | u64(1024 / 16) << 32 | u64(BOX_BYTES / 16) << 16 | (smem & 0x3ffff) >> 4;
}

/// Bytes from one k16 step of an operand to the next.
template <bool K_MAJOR>
constexpr u32 K16_BYTES = K_MAJOR ? 16 * 2 : 16 * BOX * 2;

template <int N_HALF>
__device__ __forceinline__ void wgmma(float (&accumulators)[N_HALF], u64 a, u64 b, bool accumulate) {
  if constexpr (N_HALF == 128)
    ptx::wgmma_m64n256k16<!A_K_MAJOR, !B_K_MAJOR>(Element{}, accumulators, a, b, accumulate);
  else
    ptx::wgmma_m64n128k16<!A_K_MAJOR, !B_K_MAJOR>(Element{}, accumulators, a, b, accumulate);
}

/// Stores a consumer's 64 rows of the tile from (row, column) on, a box of 128 bytes a row at a time, through two buffers.
template <typename T, bool INTERIOR>
__device__ __forceinline__ void store_by_tma(const Arguments& args, const SharedMemory& smem, u32 consumer, u32 thread, int row,
                                             int column, float (&accumulators)[COUNT]) {
  const u32 warp = thread / 32, lane = thread % 32;
  const int own_row = row + warp * 16 + lane / 4;
#pragma unroll
  for (int box = 0; box < BLOCK_N / D_BOX_COLUMNS; ++box) {
    const u32 buffer = smem.d(consumer, box % D_BUFFERS);
    if (thread == 0) ptx::tma_store_wait_group_read<D_BUFFERS - 1>();
    ptx::bar_sync(1 + consumer, 128);  // the buffer is free

    constexpr int GROUPS = D_BOX_COLUMNS / 8;  // of 8 columns
    float x[GROUPS][4];
#pragma unroll
    for (int j = 0; j < GROUPS; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        x[j][e] = accumulators[(box * GROUPS + j) * 4 + e];
        x[j][e + 1] = accumulators[(box * GROUPS + j) * 4 + e + 1];
        finish<INTERIOR>(args, own_row + e * 4, column + box * D_BOX_COLUMNS + j * 8 + lane % 4 * 2, x[j][e], x[j][e + 1]);
      }

    if constexpr (sizeof(T) == 2) {
      const u32 box_row = warp * 16 + lane % 16;
#pragma unroll
      for (int j = 0; j < GROUPS; j += 2)  // two 8 x 8 matrices down, two across
        ptx::stmatrix_x4(buffer + box_row * 128 + ((j + lane / 16) ^ box_row % 8) * 16,
                         pack(T{}, x[j][0], x[j][1]), pack(T{}, x[j][2], x[j][3]),
                         pack(T{}, x[j + 1][0], x[j + 1][1]), pack(T{}, x[j + 1][2], x[j + 1][3]));
    } else {
#pragma unroll
      for (int j = 0; j < GROUPS; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const u32 box_row = warp * 16 + lane / 4 + h * 8, chunk = j * 2 + lane % 4 / 2;
          ptx::st_shared_v2_f32(buffer + box_row * 128 + (chunk ^ box_row % 8) * 16 + lane % 2 * 8, x[j][h * 2],
                                x[j][h * 2 + 1]);
        }
    }
    ptx::fence_proxy_async();          // TMA reads what ordinary stores wrote
    ptx::bar_sync(1 + consumer, 128);  // the buffer is full
    if (thread == 0) {
      ptx::tma_store_2d(&args.map_d, buffer, column + box * D_BOX_COLUMNS, row);
      ptx::tma_store_commit_group();
    }
  }
}

/// The same without TMA, for a D that it cannot address.
template <bool INTERIOR>
__device__ __forceinline__ void store_directly(const Arguments& args, u32 thread, int row, int column,
                                               const float (&accumulators)[COUNT]) {
  row += thread / 32 * 16 + thread % 32 / 4;
  column += thread % 4 * 2;
#pragma unroll
  for (int j = 0; j < BLOCK_N / 8; ++j) {
    store_to_d<INTERIOR>(args, row, column + j * 8, accumulators[j * 4], accumulators[j * 4 + 1]);
    store_to_d<INTERIOR>(args, row + 8, column + j * 8, accumulators[j * 4 + 2], accumulators[j * 4 + 3]);
  }
}

template <bool INTERIOR>
__device__ __forceinline__ void store(const Arguments& args, const SharedMemory& smem, u32 consumer, u32 thread, int row,
                                      int column, float (&accumulators)[COUNT]) {
  if constexpr (TMA_STORE)
    store_by_tma<ElementD, INTERIOR>(args, smem, consumer, thread, row, column, accumulators);
  else
    store_directly<INTERIOR>(args, thread, row, column, accumulators);
}

/// One consumer warpgroup; `thread` counts within it.
__device__ __forceinline__ void consume(const Arguments& args, const SharedMemory& smem, u32 consumer, u32 thread) {
  const u32 lane = thread % 32;
  const u32 a_offset = A_K_MAJOR ? consumer * 64 * 128 : consumer * BOX_BYTES;
  const WorkList<PARTITION> list{args.decomposition, int(ptx::block_index())};
  RingPosition position;
  Work work;
  for (bool more = list.first(work); more; more = list.next(work)) {
    float accumulators[COUNT];
    u32 previous = 0;
#pragma unroll 1
    for (int k = work.k_begin; k < work.k_end; ++k) {
      ptx::mbarrier_wait_parity(smem.full(position.stage), position.parity);
      const u64 a = wgmma_descriptor(smem.a(position.stage) + a_offset);
      const u64 b = wgmma_descriptor(smem.b(position.stage));
      ptx::wgmma_fence();
#pragma unroll
      for (int k16 = 0; k16 < BLOCK_K / 16; ++k16)
        wgmma(accumulators, a + k16 * K16_BYTES<A_K_MAJOR> / 16, b + k16 * K16_BYTES<B_K_MAJOR> / 16,
              k > work.k_begin || k16 > 0);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();  // this k-step's group may run on, the previous one's stage is free
      if (k > work.k_begin && lane == 0) ptx::mbarrier_arrive(previous);
      previous = smem.empty(position.stage);
      position.advance();
    }
    ptx::wgmma_wait_group<0>();
    if (lane == 0) ptx::mbarrier_arrive(previous);

    const auto get_work = [&]() -> const Work& { return work; };
    if (!reduce_peers<CONSUMERS, 128>(args, get_work, consumer, thread, 1 + consumer, accumulators)) continue;
    const TileIndex tile = tile_of(args, work);
    const int row = tile.m * BLOCK_M + consumer * 64, column = tile.n * BLOCK_N;
    if (row + 64 <= args.m && column + BLOCK_N <= args.n)
      store<true>(args, smem, consumer, thread, row, column, accumulators);
    else
      store<false>(args, smem, consumer, thread, row, column, accumulators);
  }
  if (TMA_STORE && thread == 0) ptx::tma_store_wait_group_read<0>();  // shared memory outlives its readers
}

__device__ __forceinline__ void gemm(const Arguments& args) {
  const SharedMemory smem{(ptx::dynamic_smem() + 1023) / 1024 * 1024};
  const u32 warpgroup = ptx::warp_uniform(ptx::thread_index() / 128), thread = ptx::thread_index() % 128;

  if (ptx::thread_index() == 0) {
    ptx::prefetch_tensormap(&args.map_a);
    ptx::prefetch_tensormap(&args.map_b);
    if (TMA_STORE) ptx::prefetch_tensormap(&args.map_d);
    for (int stage = 0; stage < STAGES; ++stage) {
      ptx::mbarrier_init(smem.full(stage), 1);
      ptx::mbarrier_init(smem.empty(stage), CONSUMERS * 4);  // a lane of each consumer warp
    }
    ptx::fence_mbarrier_init();
  }
  ptx::bar_sync(0, THREADS);

  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (thread == 0) produce(args, smem);
  } else {
    ptx::setmaxnreg_inc<CONSUMER_REGISTERS>();
    consume(args, smem, warpgroup - 1, thread);
  }
}

}  // namespace jitgemm::device
