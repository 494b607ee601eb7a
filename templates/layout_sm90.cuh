// The Hopper main loop's constants, and what lies where in shared memory.

namespace jitgemm::device {

constexpr int common_divisor(int x, int y) { return y == 0 ? x : common_divisor(y, x % y); }

constexpr int CONSUMERS = WARPS_M * WARPS_N / 4;  // warpgroups
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int CONSUMER_ROWS = PING_PONG ? BLOCK_M : BLOCK_M / CONSUMERS;
constexpr int SLABS_M = CONSUMER_ROWS / 64;   // an m64 wgmma each
constexpr int COUNT = SLABS_M * BLOCK_N / 2;  // accumulators a thread
constexpr int BLOCKS_PER_SM = CONSUMERS == 1 && COUNT <= (PROMOTED ? 48 : 64) ? 2 : 1;
constexpr int CLUSTER = CLUSTER_M * CLUSTER_N * CLUSTER_K;

static_assert(BLOCK_K * sizeof(ElementA) == 128, "block_k is 128 bytes: one swizzled row");
static_assert(sizeof(ElementA) == 2 || (A_K_MAJOR && B_K_MAJOR),
              "wgmma takes operands other than f16 and bf16 K-major alone: A row-major, B column-major");
static_assert(CONSUMERS >= 1 && CONSUMERS <= 3, "warps are those of one to three consumer warpgroups");
static_assert(!PING_PONG || CONSUMERS == 2, "ping-pong has two consumer warpgroups");
static_assert((CONSUMER_ROWS == 64 || CONSUMER_ROWS == 128) && (PING_PONG || BLOCK_M == CONSUMERS * CONSUMER_ROWS),
              "a consumer warpgroup has 64 or 128 rows");
static_assert(BLOCK_N % (sizeof(ElementA) == 1 ? 16 : 8) == 0 && BLOCK_N >= 16 && BLOCK_N <= 256,
              "block_n is a multiple of 8, of 8-bit operands 16, in 16..256");
static_assert(COUNT <= (CONSUMERS == 3   ? 96
                        : CONSUMERS == 2 ? 160
                                         : 128),
              "a thread holds at most 128 accumulators, 160 with two consumer warpgroups, 96 with three");
static_assert(!PROMOTED || COUNT <= (CONSUMERS == 3   ? 64
                                     : CONSUMERS == 2 ? 96
                                                      : 112),
              "a thread that promotes holds at most 112 accumulators, 96 with two consumer warpgroups, 64 with three");
static_assert((!A_K_MAJOR || BLOCK_M / CLUSTER_N <= 256) && (!B_K_MAJOR || BLOCK_N / CLUSTER_M <= 256),
              "a TMA box has at most 256 rows");
static_assert(ALIGN_A == 16 && ALIGN_B == 16, "TMA loads need 16-byte aligned rows");
static_assert(STAGES >= 2, "at least 2 stages");
static_assert((!A_K_MAJOR || BLOCK_M % (8 * CLUSTER_N) == 0) && (!B_K_MAJOR || BLOCK_N % (8 * CLUSTER_M) == 0),
              "each block of a cluster fetches a multiple of 8 rows of what it shares");
static_assert(CLUSTER_K == 1 || (PARTITION == Partition::whole_tiles && !PING_PONG),
              "clusters that cut k are data-parallel and cooperative");
static_assert(BLOCK_N % (8 * CLUSTER_K) == 0, "a block of a cluster that cuts k adds up a multiple of 8 columns");

// 65536 registers an SM are 512 a thread of each of four warpgroups. One consumer has enough as it is.
constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 40;
constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 232;

// TMA boxes are 128 bytes wide and swizzled. A K-major tile is one box of BLOCK_M (BLOCK_N) rows; an M-major (N-major)
// tile, of 16-bit elements, is a box of BLOCK_K rows for each 64 of M (N), the last one whole.
constexpr int BOX = 128 / int(sizeof(ElementA));
constexpr int BOX_BYTES = BLOCK_K * 128;
constexpr int A_BYTES = BLOCK_M * 128;
constexpr int B_BYTES = B_K_MAJOR ? BLOCK_N * 128 : ceil_div(BLOCK_N, BOX) * BOX_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;

// D leaves a block in passes of 64 rows x 128 bytes, each as one or more TMA boxes whose width (D transposed: whose
// height) divides the block's columns.
constexpr int STORE_COLUMNS = BLOCK_N / CLUSTER_K;
constexpr int STORE_BYTES = STORE_COLUMNS * int(sizeof(ElementD));
constexpr bool TMA_STORE = ALIGN_D == 16 && (D_TRANSPOSED || STORE_BYTES % 16 == 0);  // it clips a row at 16 bytes
constexpr int D_BOX_WIDTH = D_TRANSPOSED                           ? min_of(128, 64 * int(sizeof(ElementD)))  // bytes
                            : !TMA_STORE || STORE_BYTES % 128 == 0 ? 128
                            : STORE_BYTES % 64 == 0                ? 64
                            : STORE_BYTES % 32 == 0                ? 32
                                                                   : 16;
constexpr int D_BUFFER_BYTES = 64 * 128;
constexpr int D_BUFFERS = 2;  // a consumer

static_assert(CLUSTER_K == 1 || BLOCK_M * BLOCK_N * 4 <= STAGES * STAGE_BYTES,
              "the partial sums of a cluster that cuts k fit into the stages");

struct SharedMemory {
  u32 base;  // 1024-byte aligned, as the swizzle needs

  __device__ __forceinline__ u32 a(int stage) const { return base + stage * STAGE_BYTES; }
  __device__ __forceinline__ u32 b(int stage) const { return a(stage) + A_BYTES; }
  __device__ __forceinline__ u32 d(u32 consumer, u32 buffer) const {
    return base + STAGES * STAGE_BYTES + (consumer * D_BUFFERS + buffer) * D_BUFFER_BYTES;
  }
  __device__ __forceinline__ u32 full(int stage) const { return d(CONSUMERS, 0) + stage * 16; }
  __device__ __forceinline__ u32 empty(int stage) const { return full(stage) + 8; }
  __device__ __forceinline__ u32 turn(u32 consumer) const { return full(STAGES) + consumer * 8; }  // of ping-pong
  __device__ __forceinline__ u32 peers_done() const { return full(STAGES); }  // of clusters that cut k
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
  __device__ __forceinline__ void advance(int steps) {
    const u32 to = u32(stage + steps);
    parity ^= to / STAGES & 1;
    stage = int(to % STAGES);
  }
};

/// A block's place in its cluster, whose blocks are numbered along M first, then along N, then along K.
struct ClusterPlace {
  u32 rank;
  int m, n, k;

  __device__ __forceinline__ ClusterPlace() : rank(CLUSTER > 1 ? ptx::cluster_rank() : 0) {
    m = rank % CLUSTER_M;
    n = rank / CLUSTER_M % CLUSTER_N;
    k = rank / (CLUSTER_M * CLUSTER_N);
  }
  static __device__ __forceinline__ u32 rank_of(int m, int n, int k) { return (k * CLUSTER_N + n) * CLUSTER_M + m; }

  /// Blocks with the same rows of A, or columns of B, a bit each.
  __device__ __forceinline__ u16 sharers_of_a() const {
    u32 blocks = 0;
    for (int i = 0; i < CLUSTER_N; ++i) blocks |= 1u << rank_of(m, i, k);
    return u16(blocks);
  }
  __device__ __forceinline__ u16 sharers_of_b() const { return u16(((1u << CLUSTER_M) - 1) << rank_of(0, n, k)); }

  /// The blocks that this one shares an operand with, itself included: CLUSTER_M + CLUSTER_N - 1, in some order.
  static constexpr int SHARERS = CLUSTER_M + CLUSTER_N - 1;
  __device__ __forceinline__ u32 sharer(int i) const {
    const int other_n = i - CLUSTER_M;
    return i < CLUSTER_M ? rank_of(i, n, k) : rank_of(m, other_n + (other_n >= n), k);
  }
};

/// One block's part of a cluster's work, found before the wait for its operands.
struct BlockTile {
  int row, column, batch;

  __device__ __forceinline__ BlockTile(const Arguments& args, const Work& work, const ClusterPlace& place) {
    const TileIndex tile = raster(work.tile, args.decomposition, GROUP_M);
    row = (tile.m * CLUSTER_M + place.m) * BLOCK_M;
    column = (tile.n * CLUSTER_N + place.n) * BLOCK_N;
    batch = tile.batch;
    ptx::compute_now(row);
    ptx::compute_now(column);
  }
};
__device__ __forceinline__ int k_begin_of(const Work& work, int k) {
  return work.k_begin +
         (CLUSTER_K == 1 ? k * (work.k_end - work.k_begin) : range_begin(work.k_end - work.k_begin, CLUSTER_K, k));
}

}  // namespace jitgemm::device
