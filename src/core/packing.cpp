#include "core/packing.hpp"

#include <algorithm>

#include "core/operand_matrix.hpp"
#include "core/problem.hpp"

namespace jitgemm {
namespace {

// templates/pack.cuh. A thread copies one chunk of 16 bytes where that many threads run at once, and more of larger operands:
// 4 blocks on each of an H200's SMs.
constexpr int pack_threads = 256, most_pack_blocks = 4 * 132;
constexpr int tile_rows = 128, tile_chunks = 8;  // of what a block transposes at once
constexpr std::size_t tile_bytes = std::size_t(tile_rows) * tile_chunks * 16;

std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }

/// 16-bit operands keep their layout, all others become K-major.
bool becomes_k_major(const Problem& p) { return size_of(p.a) != 2; }

/// Rows of whole 128-byte lines: TMA reads rows that straddle them at half the speed.
std::int64_t packed_ld(const OperandMatrix& packed) {
  const auto line = std::int64_t(128 / size_of(packed.type));
  return std::max<std::int64_t>(1, ceil_div(packed.extent, line)) * line;
}

/// Fills in what packing makes of an operand whose layout is the packed one already.
void pack(const OperandMatrix& matrix, std::int64_t& ld, std::int64_t& stride, int& align) {
  ld = packed_ld(matrix);
  stride = matrix.batch > 1 && matrix.stride != 0 ? matrix.vectors * ld : 0;
  align = 16;
}

/// Of one that is packed.
std::int64_t matrices(const OperandMatrix& packed) { return packed.stride == 0 ? 1 : packed.batch; }
double bytes(const OperandMatrix& packed) {
  return double(packed.ld) * double(packed.vectors) * double(matrices(packed)) * double(size_of(packed.type));
}

int blocks(const OperandMatrix& packed, bool transposed) {
  const std::int64_t chunks = ceil_div(packed.extent * std::int64_t(size_of(packed.type)), 16);
  const std::int64_t wanted =
      transposed ? ceil_div(chunks, tile_chunks) * ceil_div(packed.vectors, tile_rows) * matrices(packed)
                 : ceil_div(chunks * packed.vectors * matrices(packed), pack_threads);
  return int(std::clamp<std::int64_t>(wanted, 1, most_pack_blocks));
}

}  // namespace

bool needs_packing_a(const Problem& p) { return p.align_a < 16 || (becomes_k_major(p) && p.layout_a != Layout::row_major); }
bool needs_packing_b(const Problem& p) {
  return p.align_b < 16 || (becomes_k_major(p) && p.layout_b != Layout::column_major);
}

bool transposes_a(const Problem& p, const KernelConfig& c) {
  return c.pack_a && becomes_k_major(p) && p.layout_a != Layout::row_major;
}
bool transposes_b(const Problem& p, const KernelConfig& c) {
  return c.pack_b && becomes_k_major(p) && p.layout_b != Layout::column_major;
}

Problem packed_problem(const Problem& normalised, const KernelConfig& c) {
  Problem p = normalised;
  if (c.pack_a) {
    if (becomes_k_major(p)) p.layout_a = Layout::row_major;
    pack(matrix_a(p), p.lda, p.stride_a, p.align_a);
  }
  if (c.pack_b) {
    if (becomes_k_major(p)) p.layout_b = Layout::column_major;
    pack(matrix_b(p), p.ldb, p.stride_b, p.align_b);
  }
  return p;
}

bool packing_fits(const Problem& normalised, const KernelConfig& c) {
  const Problem p = packed_problem(normalised, c);
  return (c.pack_a ? bytes(matrix_a(p)) + 256 : 0) + (c.pack_b ? bytes(matrix_b(p)) + 256 : 0) <= double(max_packed_bytes);
}

Packing packing_of(const Problem& normalised, const KernelConfig& c) {
  Packing packing;
  if (!packs(c) || !reads_ab(normalised)) return packing;
  const Problem p = packed_problem(normalised, c);
  const OperandMatrix a = matrix_a(p), b = matrix_b(p);
  const bool transposed_a = transposes_a(normalised, c), transposed_b = transposes_b(normalised, c);
  const auto place = [&packing](const OperandMatrix& packed, std::size_t& offset) {
    offset = (packing.bytes + 255) / 256 * 256;
    packing.bytes = offset + std::size_t(bytes(packed));
  };
  if (c.pack_a) place(a, packing.offset_a), packing.blocks_a = blocks(a, transposed_a);
  if (c.pack_b) place(b, packing.offset_b), packing.blocks_b = blocks(b, transposed_b);
  if (packing.blocks_a + packing.blocks_b > most_pack_blocks) {  // shared as their bytes are
    const double share = bytes(a) / (bytes(a) + bytes(b));
    packing.blocks_a = std::clamp(int(share * most_pack_blocks), 1, most_pack_blocks - 1);
    packing.blocks_b = most_pack_blocks - packing.blocks_a;
  }
  packing.launch.grid = packing.blocks_a + packing.blocks_b;
  packing.launch.threads = pack_threads;
  packing.launch.smem_bytes = transposed_a || transposed_b ? tile_bytes : 0;
  return packing;
}

}  // namespace jitgemm
