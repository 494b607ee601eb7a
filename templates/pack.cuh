// The packing pass: rows that begin anywhere become rows of whole 16-byte chunks, as they are or transposed. Global
// memory is read in aligned 16-byte vectors that lie wholly within the matrix, two for a chunk that straddles them, and
// shifted; single elements are read only where such a vector would reach beyond.
#pragma once
#include "ide.cuh"
#include "pack_arguments.cuh"
#include "ptx/barrier.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/global.cuh"
#include "ptx/shared.cuh"
#include "ptx/special_registers.cuh"

namespace jitgemm::device {

constexpr int THREADS = 256, BLOCKS_PER_SM = 4;
constexpr int SIZE = sizeof(Element), CHUNK = 16 / SIZE;  // bytes; elements
constexpr int UNROLL = 4;                                 // chunks that a thread has in flight

/// One matrix of the operand, bytes.
struct SourceMatrix {
  const char *source_begin, *source_end;

  __device__ __forceinline__ SourceMatrix(const PackedOperand& operand, u32 batch)
      : source_begin(static_cast<const char*>(operand.source) + i64(batch) * operand.stride * SIZE),
        source_end(source_begin + (i64(operand.vectors - 1) * operand.ld + operand.extent) * SIZE) {}
};

/// The elements from `at` on that lie before `source_end`, one by one; zeros behind them.
__device__ __forceinline__ U32x4 load_elements(const char* at, const char* source_end) {
  u32 x[4] = {};
#pragma unroll
  for (int i = 0; i < CHUNK; ++i) {
    if (at + i * SIZE < source_end)
      x[i * SIZE / 4] |= u32(ptx::ld_global<Element>(at + i * SIZE)) << 8 * (i * SIZE % 4);
  }
  return {x[0], x[1], x[2], x[3]};
}

/// 16 bytes from an element on, on their way. What lies beyond the matrix comes as anything.
struct Chunk {
  U32x4 low, high;
  u32 offset;  // of the first byte in them

  __device__ __forceinline__ void load(const SourceMatrix& matrix, i64 element) {
    const char *source_begin = matrix.source_begin, *source_end = matrix.source_end,
               *at = source_begin + element * SIZE;
    offset = u64(at) % 16;
    const char* aligned = at - offset;
    if (aligned >= source_begin && aligned + (offset == 0 ? 16 : 32) <= source_end) {
      low = ptx::ld_global<U32x4>(aligned);
      if (offset != 0) high = ptx::ld_global<U32x4>(aligned + 16);
    } else {
      low = load_elements(at, source_end);
      offset = 0;
    }
  }

  __device__ __forceinline__ U32x4 get() const {
    u32 x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) x[i] = offset & 8 ? x[i + 2] : x[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) x[i] = offset & 4 ? x[i + 1] : x[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = u32((u64(x[i + 1]) << 32 | x[i]) >> 8 * (offset & 3));
    return {x[0], x[1], x[2], x[3]};
  }
};

/// A chunk of a copy whose columns are pairs, 8 of each kind in turn as the GEMM kernel wants them (pairs.cuh), of
/// 16-bit elements.
template <Pairing PAIRING>
struct PairedChunk {
  Chunk first, second;  // of neighbours, 16 in turn
  u32 kind;

  __device__ __forceinline__ void load(const PackedOperand& operand, const SourceMatrix& matrix, i64 row, u32 chunk) {
    const u32 group = chunk / 2;
    kind = chunk % 2;
    if constexpr (PAIRING == Pairing::halves) {
      first.load(matrix, row + kind * operand.half + group * CHUNK);
    } else {
      first.load(matrix, row + group * (2 * CHUNK));
      second.load(matrix, row + group * (2 * CHUNK) + CHUNK);
    }
  }

  __device__ __forceinline__ U32x4 get() const {
    const U32x4 x = first.get();
    if constexpr (PAIRING == Pairing::halves) return x;
    const U32x4 y = second.get();
    const auto of_kind = [&](u32 low, u32 high) {
      return kind == 0 ? ptx::prmt<0x5410>(low, high) : ptx::prmt<0x7632>(low, high);
    };
    return {of_kind(x.x, x.y), of_kind(x.z, x.w), of_kind(y.x, y.y), of_kind(y.z, y.w)};
  }
};
template <>
struct PairedChunk<Pairing::none> {
  Chunk only;

  __device__ __forceinline__ void load(const PackedOperand&, const SourceMatrix& matrix, i64 row, u32 chunk) {
    only.load(matrix, row + chunk * CHUNK);
  }
  __device__ __forceinline__ U32x4 get() const { return only.get(); }
};

/// Row by row, as one run of chunks, of which neighbouring threads take neighbours.
template <Pairing PAIRING>
__device__ __forceinline__ void copy_rows(const PackedOperand& operand, u32 block) {
  const u32 chunks = operand.chunks, step = operand.blocks * THREADS;
  const u32 chunk_count = operand.vectors * operand.batch * chunks;
  const u32 step_rows = step / chunks, step_chunks = step % chunks;
  u32 index = block * THREADS + ptx::thread_index();
  u32 row = index / chunks, chunk = index % chunks;  // of `index`
  U32x4* packed = static_cast<U32x4*>(operand.packed);
  if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_wait();
#pragma unroll 1
  for (; index < chunk_count; index += UNROLL * step) {
    PairedChunk<PAIRING> loaded[UNROLL];
    u32 to[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
      to[i] = row * operand.row_chunks + chunk;
      if (index + i * step < chunk_count) {
        const u32 batch = operand.batch == 1 ? 0 : row / operand.vectors;
        const u32 vector = row - batch * operand.vectors;
        loaded[i].load(operand, SourceMatrix(operand, batch), vector * operand.ld, chunk);
      }
      row += step_rows;
      chunk += step_chunks;
      if (chunk >= chunks) {
        chunk -= chunks;
        ++row;
      }
    }
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
      if (index + i * step < chunk_count) ptx::st_global(packed + to[i], loaded[i].get());
    }
  }
}

// Transposed through shared memory in tiles of TILE_ROWS rows of the copy, TILE_CHUNKS chunks each: as words of 4 bytes
// along a row of the copy, those of all rows at one place side by side. 16-byte groups of rows are swizzled so that
// both a thread that has four rows and one that wants four words find banks of their own.
constexpr int TILE_ROWS = 128, TILE_CHUNKS = 8;
static_assert(SIZE == 2 || INTERLEAVE_B == Pairing::none, "TMA copies rows that are pairs");
static_assert(SIZE != 2 || !(TRANSPOSE_A || TRANSPOSE_B), "elements of 1 and 4 bytes are transposed");
static_assert(TILE_ROWS * TILE_CHUNKS == UNROLL * THREADS, "each thread loads and stores UNROLL chunks of a tile");

__device__ __forceinline__ u32 word_address(u32 smem, u32 word, u32 row) {
  return smem + word * (TILE_ROWS * 4) + (row / 4 ^ word / 4) * 16 + row % 4 * 4;
}

/// 4 x 4 bytes: the ith of each word becomes the ith word.
__device__ __forceinline__ U32x4 transposed(u32 a, u32 b, u32 c, u32 d) {
  const u32 ab_low = ptx::prmt<0x5140>(a, b), ab_high = ptx::prmt<0x7362>(a, b);
  const u32 cd_low = ptx::prmt<0x5140>(c, d), cd_high = ptx::prmt<0x7362>(c, d);
  return {ptx::prmt<0x5410>(ab_low, cd_low), ptx::prmt<0x7632>(ab_low, cd_low), ptx::prmt<0x5410>(ab_high, cd_high),
          ptx::prmt<0x7632>(ab_high, cd_high)};
}

/// One tile, from element `row` of the source's vectors `vector` and on.
__device__ __forceinline__ void load_tile(const SourceMatrix& matrix, i64 ld, u32 row, u32 vector, u32 smem) {
  const u32 thread = ptx::thread_index();
  Chunk loaded[UNROLL];
  if constexpr (SIZE == 4) {  // a word is an element
    const u32 tile_row = thread % 32 * 4, word = thread / 32;
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) loaded[i].load(matrix, (vector + word + i * 8) * ld + row + tile_row);
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) ptx::st_shared_v4(word_address(smem, word + i * 8, tile_row), loaded[i].get());
  } else {  // a word is the bytes of four vectors
    const u32 tile_row = thread % 8 * 16, word = thread / 8;
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) loaded[i].load(matrix, (vector + word * 4 + i) * ld + row + tile_row);
    const U32x4 a = loaded[0].get(), b = loaded[1].get(), c = loaded[2].get(), d = loaded[3].get();
    ptx::st_shared_v4(word_address(smem, word, tile_row), transposed(a.x, b.x, c.x, d.x));
    ptx::st_shared_v4(word_address(smem, word, tile_row + 4), transposed(a.y, b.y, c.y, d.y));
    ptx::st_shared_v4(word_address(smem, word, tile_row + 8), transposed(a.z, b.z, c.z, d.z));
    ptx::st_shared_v4(word_address(smem, word, tile_row + 12), transposed(a.w, b.w, c.w, d.w));
  }
}

__device__ __forceinline__ void transpose(const PackedOperand& operand, u32 block) {
  const u32 smem = ptx::dynamic_smem();
  const u32 packed_rows = operand.extent, packed_chunks = operand.chunks;
  const u32 row_tiles = (packed_rows + TILE_ROWS - 1) / TILE_ROWS,
            chunk_tiles = (packed_chunks + TILE_CHUNKS - 1) / TILE_CHUNKS;
  const u32 tiles = row_tiles * chunk_tiles * operand.batch;
  U32x4* packed = static_cast<U32x4*>(operand.packed);
  if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_wait();
#pragma unroll 1
  for (u32 tile = block; tile < tiles; tile += operand.blocks) {
    const u32 first_row = tile % row_tiles * TILE_ROWS, first_chunk = tile / row_tiles % chunk_tiles * TILE_CHUNKS;
    const u32 batch = tile / row_tiles / chunk_tiles;
    load_tile(SourceMatrix(operand, batch), operand.ld, first_row, first_chunk * CHUNK, smem);
    ptx::bar_sync(0, THREADS);
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
      const u32 item = ptx::thread_index() + i * THREADS, tile_row = item / TILE_CHUNKS, word = item % TILE_CHUNKS * 4;
      const u32 row = first_row + tile_row, chunk = first_chunk + item % TILE_CHUNKS;
      if (row < packed_rows && chunk < packed_chunks) {
        const U32x4 x{ptx::ld_shared_u32(word_address(smem, word, tile_row)),
                      ptx::ld_shared_u32(word_address(smem, word + 1, tile_row)),
                      ptx::ld_shared_u32(word_address(smem, word + 2, tile_row)),
                      ptx::ld_shared_u32(word_address(smem, word + 3, tile_row))};
        ptx::st_global(packed + ((batch * packed_rows + row) * operand.row_chunks + chunk), x);
      }
    }
    ptx::bar_sync(0, THREADS);  // the next tile takes the same shared memory
  }
}

template <bool TRANSPOSE, Pairing PAIRING = Pairing::none>
__device__ __forceinline__ void pack(const PackedOperand& operand, u32 block) {
  if constexpr (TRANSPOSE)
    transpose(operand, block);
  else
    copy_rows<PAIRING>(operand, block);
}

__device__ __forceinline__ void pack(const PackArguments& args) {
  if constexpr (DEPENDENT_LAUNCH) ptx::griddepcontrol_launch_dependents();
  const u32 blocks_a = args.operands[0].blocks, which = ptx::block_index() >= blocks_a;
  const u32 block = ptx::block_index() - which * blocks_a;
  if constexpr (TRANSPOSE_A == TRANSPOSE_B && INTERLEAVE_B == Pairing::none)
    pack<TRANSPOSE_A>(args.operands[which], block);  // half the code
  else if (which == 0)
    pack<TRANSPOSE_A>(args.operands[0], block);
  else
    pack<TRANSPOSE_B, INTERLEAVE_B>(args.operands[1], block);
}

}  // namespace jitgemm::device
