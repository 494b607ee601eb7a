// The Hopper main loop, sm_90a: one thread of a producer warpgroup fills a ring of STAGES k-steps by TMA, one or two consumer
// warpgroups multiply it with wgmma, 64 rows of the tile each, and store D by TMA while the producer is already at the next
// tile. A pair of mbarriers a stage passes it back and forth.

namespace jitgemm::device {

constexpr int CONSUMERS = WARPS_M * WARPS_N / 4;  // warpgroups
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int COUNT = 64 * BLOCK_N / 128;  // accumulators a thread
constexpr int BLOCKS_PER_SM = CONSUMERS == 1 && COUNT <= 64 ? 2 : 1;

static_assert(BLOCK_K * sizeof(ElementA) == 128, "block_k is 128 bytes: one swizzled row");
static_assert(sizeof(ElementA) == 2 || (A_K_MAJOR && B_K_MAJOR),
              "wgmma takes operands other than f16 and bf16 K-major alone: A row-major, B column-major");
static_assert((CONSUMERS == 1 || CONSUMERS == 2) && BLOCK_M == 64 * CONSUMERS,
              "block_m is 64 rows for each of one or two consumer warpgroups");
static_assert(BLOCK_N % 64 == 0 && BLOCK_N <= 256, "block_n is a multiple of 64 up to 256");
static_assert(ALIGN_A == 16 && ALIGN_B == 16, "TMA loads need 16-byte aligned rows");
static_assert(STAGES >= 2, "at least 2 stages");

// Of 65536 registers an SM, 3 warpgroups x 128 threads: 40 + 2 x 232 = 504 a thread of each. One consumer has enough as it is.
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;

// Shared memory. TMA boxes are 128 bytes wide and swizzled. A K-major tile is one box of BLOCK_M (BLOCK_N) rows; an M-major
// (N-major) tile, of 16-bit elements, is a box of BLOCK_K rows for each 64 of M (N).
constexpr int BOX = 128 / int(sizeof(ElementA));
constexpr int A_BYTES = BLOCK_M * 128, B_BYTES = BLOCK_N * 128;
constexpr int BOX_BYTES = BLOCK_K * 128;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int D_BOX_COLUMNS = 128 / int(sizeof(ElementD));
constexpr bool TMA_STORE = ALIGN_D == 16 && BLOCK_N % D_BOX_COLUMNS == 0;  // it clips a row at 16 bytes, not at an element
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
  return raster(work.tile, args.decomposition, GROUP_M);
}

template <int BLOCK, bool K_MAJOR>
__device__ __forceinline__ void load_operand(u32 smem, const TensorMap* map, u32 barrier, int mn, int k, int batch) {
  if constexpr (K_MAJOR) {
    ptx::tma_load_3d(smem, map, barrier, k, mn, batch);
  } else {
#pragma unroll
    for (int i = 0; i < BLOCK / BOX; ++i) ptx::tma_load_3d(smem + i * BOX_BYTES, map, barrier, mn + i * BOX, k, batch);
  }
}

/// One thread.
__device__ __forceinline__ void produce(const Arguments& args, const SharedMemory& smem) {
  const WorkList<PARTITION> list{args.decomposition, int(ptx::block_index())};
  RingPosition position;
  Work work;
  for (bool more = list.first(work); more; more = list.next(work)) {
    const TileIndex tile = tile_of(args, work);
    const int batch_a = BATCHED && args.stride_a != 0 ? tile.batch : 0;  // else all use one matrix
    const int batch_b = BATCHED && args.stride_b != 0 ? tile.batch : 0;
    for (int k = work.k_begin; k < work.k_end; ++k) {
      const u32 full = smem.full(position.stage);
      ptx::mbarrier_wait_parity(smem.empty(position.stage), position.parity ^ 1);  // passes in the first pass
      ptx::mbarrier_arrive_expect_tx(full, STAGE_BYTES);
      load_operand<BLOCK_M, A_K_MAJOR>(smem.a(position.stage), &args.map_a, full, tile.m * BLOCK_M, k * BLOCK_K, batch_a);
      load_operand<BLOCK_N, B_K_MAJOR>(smem.b(position.stage), &args.map_b, full, tile.n * BLOCK_N, k * BLOCK_K, batch_b);
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

/// Bytes from one wgmma's 32 bytes of k to the next.
template <bool K_MAJOR>
constexpr u32 SLAB_BYTES = K_MAJOR ? 32 : 16 * 128;

__device__ __forceinline__ u32 bits(float x) { return __builtin_bit_cast(u32, x); }
__device__ __forceinline__ u32 bits(int x) { return u32(x); }

/// Stores a consumer's 64 rows of the tile from (row, column) on, a box of 128 bytes a row at a time, through two buffers.
template <bool INTERIOR, typename T = ElementD>
__device__ __forceinline__ void store_by_tma(const Epilogue& epilogue, const SharedMemory& smem, u32 consumer, u32 thread,
                                             int row, int column, const Accumulator (&accumulators)[COUNT]) {
  const u32 warp = thread / 32, lane = thread % 32;
  const int own_row = row + warp * 16 + lane / 4;
#pragma unroll
  for (int box = 0; box < BLOCK_N / D_BOX_COLUMNS; ++box) {
    const u32 buffer = smem.d(consumer, box % D_BUFFERS);
    // The box before it has the other buffer, but for a tile's first one after a tile of an odd number of boxes.
    constexpr int PENDING = BLOCK_N / D_BOX_COLUMNS % D_BUFFERS == 0 ? D_BUFFERS - 1 : 0;
    if (thread == 0) ptx::tma_store_wait_group_read<PENDING>();
    ptx::bar_sync(1 + consumer, 128);  // the buffer is free

    constexpr int GROUPS = D_BOX_COLUMNS / 8;  // of 8 columns
    Accumulator x[GROUPS][4];
#pragma unroll
    for (int j = 0; j < GROUPS; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        x[j][e] = accumulators[(box * GROUPS + j) * 4 + e];
        x[j][e + 1] = accumulators[(box * GROUPS + j) * 4 + e + 1];
        epilogue.finish<INTERIOR>(own_row + e * 4, column + box * D_BOX_COLUMNS + j * 8 + lane % 4 * 2, x[j][e], x[j][e + 1]);
      }

    if constexpr (sizeof(T) == 2) {
      const u32 box_row = warp * 16 + lane % 16;
#pragma unroll
      for (int j = 0; j < GROUPS; j += 2)  // two 8 x 8 matrices down, two across
        ptx::stmatrix_x4(buffer + box_row * 128 + ((j + lane / 16) ^ box_row % 8) * 16,
                         ptx::pack(T{}, x[j][0], x[j][1]), ptx::pack(T{}, x[j][2], x[j][3]),
                         ptx::pack(T{}, x[j + 1][0], x[j + 1][1]), ptx::pack(T{}, x[j + 1][2], x[j + 1][3]));
    } else {
#pragma unroll
      for (int j = 0; j < GROUPS; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const u32 box_row = warp * 16 + lane / 4 + h * 8, at = (j * 8 + lane % 4 * 2) * sizeof(T);  // bytes along the row
          const u32 to = buffer + box_row * 128 + (at / 16 ^ box_row % 8) * 16 + at % 16;
          if constexpr (sizeof(T) == 1)
            ptx::st_shared_u16(to, ptx::pack(T{}, x[j][h * 2], x[j][h * 2 + 1]));
          else
            ptx::st_shared_v2(to, bits(x[j][h * 2]), bits(x[j][h * 2 + 1]));
        }
    }
    ptx::fence_proxy_async();          // TMA reads what ordinary stores wrote
    ptx::bar_sync(1 + consumer, 128);  // the buffer is full
    if (thread == 0) {
      ptx::tma_store_3d(&epilogue.args.map_d, buffer, column + box * D_BOX_COLUMNS, row, epilogue.batch);
      ptx::tma_store_commit_group();
    }
  }
}

/// The same without TMA, for a D that it cannot address.
template <bool INTERIOR>
__device__ __forceinline__ void store_directly(const Epilogue& epilogue, u32 thread, int row, int column,
                                               const Accumulator (&accumulators)[COUNT]) {
  row += thread / 32 * 16 + thread % 32 / 4;
  column += thread % 4 * 2;
#pragma unroll
  for (int j = 0; j < BLOCK_N / 8; ++j) {
    epilogue.store_pair<INTERIOR>(row, column + j * 8, accumulators[j * 4], accumulators[j * 4 + 1]);
    epilogue.store_pair<INTERIOR>(row + 8, column + j * 8, accumulators[j * 4 + 2], accumulators[j * 4 + 3]);
  }
}

template <bool INTERIOR>
__device__ __forceinline__ void store(const Epilogue& epilogue, const SharedMemory& smem, u32 consumer, u32 thread, int row,
                                      int column, const Accumulator (&accumulators)[COUNT]) {
  if constexpr (TMA_STORE)
    store_by_tma<INTERIOR>(epilogue, smem, consumer, thread, row, column, accumulators);
  else
    store_directly<INTERIOR>(epilogue, thread, row, column, accumulators);
}

/// One consumer warpgroup; `thread` counts within it.
__device__ __forceinline__ void consume(const Arguments& args, const SharedMemory& smem, u32 consumer, u32 thread) {
  const u32 lane = thread % 32;
  const u32 a_offset = A_K_MAJOR ? consumer * 64 * 128 : consumer * BOX_BYTES;
  const WorkList<PARTITION> list{args.decomposition, int(ptx::block_index())};
  RingPosition position;
  Work work;
  for (bool more = list.first(work); more; more = list.next(work)) {
    if constexpr (READS_C) {
      const TileIndex tile = tile_of(args, work);
      const int row = tile.m * BLOCK_M + consumer * 64, column = tile.n * BLOCK_N;
      if (work.peer == 0) prefetch_c<64, BLOCK_N>(args, tile, row, column, thread, 128);
    }
    Accumulator accumulators[COUNT];
    u32 previous = 0;
#pragma unroll 1
    for (int k = work.k_begin; k < work.k_end; ++k) {
      ptx::mbarrier_wait_parity(smem.full(position.stage), position.parity);
      const u64 a = wgmma_descriptor(smem.a(position.stage) + a_offset);
      const u64 b = wgmma_descriptor(smem.b(position.stage));
      ptx::wgmma_fence();
#pragma unroll
      for (int slab = 0; slab < 4; ++slab)
        ptx::wgmma<ElementA, ElementB, !A_K_MAJOR, !B_K_MAJOR>(accumulators, a + slab * SLAB_BYTES<A_K_MAJOR> / 16,
                                                               b + slab * SLAB_BYTES<B_K_MAJOR> / 16,
                                                               k > work.k_begin || slab > 0);
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
    const Epilogue epilogue(args, tile.batch);
    const int row = tile.m * BLOCK_M + consumer * 64, column = tile.n * BLOCK_N;
    if (row + 64 <= args.m && column + BLOCK_N <= args.n)
      store<true>(epilogue, smem, consumer, thread, row, column, accumulators);
    else
      store<false>(epilogue, smem, consumer, thread, row, column, accumulators);
  }
  if (TMA_STORE && thread == 0) ptx::tma_store_wait_group_read<0>();  // shared memory outlives its readers
}

__device__ __forceinline__ void gemm(const Arguments& args) {
  if constexpr (DEPENDENT_LAUNCH) {
    ptx::griddepcontrol_launch_dependents();
    ptx::griddepcontrol_wait();
  }
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
    if constexpr (CONSUMERS > 1) ptx::setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (thread == 0) produce(args, smem);
  } else {
    if constexpr (CONSUMERS > 1) ptx::setmaxnreg_inc<CONSUMER_REGISTERS>();
    consume(args, smem, warpgroup - 1, thread);
  }
}

}  // namespace jitgemm::device
