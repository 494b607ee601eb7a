#include "kernels/packing.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/operand_matrix.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "core/tensor_map_spec.hpp"

namespace jitgemm {
namespace {

// templates/pack.cuh. A thread copies one chunk of 16 bytes where that many threads run at once, and more of larger
// operands: 4 blocks on each of an H200's SMs.
constexpr int pack_threads = 256, most_pack_blocks = 4 * 132;
constexpr int tile_rows = 128, tile_chunks = 8;  // of what a block transposes at once
constexpr std::size_t tile_bytes = std::size_t(tile_rows) * tile_chunks * 16;

std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }

/// 16-bit operands keep their layout, all others become K-major.
bool becomes_k_major(const NormalProblem& p) { return size_of(p.a.type) != 2; }

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

/// Slabs of columns have whole groups of pairs, to the last; halves of many matrices would be a batch of batches.
bool pairs_may_be_cut(const NormalProblem& p) {
  if (!has_pairs(p)) return true;
  const bool are_halves_of_many = pairing_of(p) == Pairing::halves && p.batch > 1 && p.b.stride != 0;
  return columns_of_d(p) % pair_columns == 0 && !are_halves_of_many;
}

}  // namespace

bool needs_packing_a(const NormalProblem& p) {
  return p.a.alignment < 16 || !strides_are_mappable(matrix_a(p)) ||
         (becomes_k_major(p) && p.a.layout != Layout::row_major);
}
bool needs_packing_b(const NormalProblem& p) {
  return p.b.alignment < 16 || !strides_are_mappable(matrix_b(p)) ||
         (becomes_k_major(p) && p.b.layout != Layout::column_major) || interleaves_b(p);
}
bool interleaves_b(const NormalProblem& p) {
  return has_pairs(p) && !becomes_k_major(p) && p.b.layout == Layout::row_major;
}

bool transposes_a(const NormalProblem& p, const KernelConfig& c) {
  return c.pack_a && becomes_k_major(p) && p.a.layout != Layout::row_major;
}
bool transposes_b(const NormalProblem& p, const KernelConfig& c) {
  return c.pack_b && becomes_k_major(p) && p.b.layout != Layout::column_major;
}

NormalProblem packed_problem(const NormalProblem& normalised, const KernelConfig& c) {
  NormalProblem p = normalised;
  if (c.pack_a) {
    if (becomes_k_major(p)) p.a.layout = Layout::row_major;
    pack(matrix_a(p), p.a.ld, p.a.stride, p.a.alignment);
  }
  if (c.pack_b) {
    if (becomes_k_major(p)) p.b.layout = Layout::column_major;
    pack(matrix_b(p), p.b.ld, p.b.stride, p.b.alignment);
  }
  return p;
}

Slab slab_of(const NormalProblem& normalised, const KernelConfig& c) {
  if (!packs(c)) return {normalised.m, normalised.n};
  const NormalProblem p = packed_problem(normalised, c);
  const double budget = double(max_packed_bytes) - 256;  // and what aligns the second copy
  const double a_bytes = c.pack_a ? bytes(matrix_a(p)) : 0, b_bytes = c.pack_b ? bytes(matrix_b(p)) : 0;
  if (a_bytes + b_bytes <= budget) return {p.m, p.n};

  // The larger copy leaves the smaller one whole, if that takes no more than half.
  const double b_share = std::max(budget - a_bytes, std::min(b_bytes, budget / 2)),
               a_share = budget - std::min(b_bytes, b_share);
  // As many parts of whole tiles as it takes, of nearly the same size.
  const auto part = [](double all_bytes, double share, std::int64_t extent, std::int64_t tile) {
    if (all_bytes <= share) return extent;
    const auto most = std::int64_t(share / all_bytes * double(extent)) / tile * tile;
    return most == 0 ? 0 : ceil_div(ceil_div(extent, ceil_div(extent, most)), tile) * tile;
  };
  // An operand that stays M-major (N-major) has rows of whole lines then, too.
  int tile_m = c.block_m * c.cluster_m, tile_n = c.block_n * c.cluster_n;
  if (c.swap_ab) std::swap(tile_m, tile_n);
  const Slab slab{part(a_bytes, a_share, p.m, p.a.layout == Layout::row_major ? tile_m : std::lcm(64, tile_m)),
                  part(b_bytes, b_share, p.n, p.b.layout == Layout::column_major ? tile_n : std::lcm(64, tile_n))};
  if (slab.columns != p.n && !pairs_may_be_cut(p)) return {0, 0};
  return slab.rows == 0 || slab.columns == 0 ? Slab{0, 0} : slab;
}

NormalProblem slab_problem(const NormalProblem& normalised, const Slab& slab) {
  NormalProblem part = normalised;
  if (slab.rows > 0) part.m = std::min(part.m, slab.rows), part.n = std::min(part.n, slab.columns);
  return part;
}

std::int64_t slab_count(const NormalProblem& normalised, const Slab& slab) {
  if (slab.rows == 0 || slab.columns == 0) return 1;
  return ceil_div(normalised.m, slab.rows) * ceil_div(normalised.n, slab.columns);
}

Packing packing_of(const NormalProblem& normalised, const KernelConfig& c) {
  Packing packing;
  if (!packs(c) || !reads_ab(normalised)) return packing;
  const Slab slab = slab_of(normalised, c);
  NormalProblem first = normalised;
  first.m = slab.rows;
  first.n = slab.columns;
  const NormalProblem p = packed_problem(first, c);
  const OperandMatrix a = matrix_a(p), b = matrix_b(p);
  const bool transposed_a = transposes_a(normalised, c), transposed_b = transposes_b(normalised, c);
  const auto place = [&packing](const OperandMatrix& packed, std::size_t& offset) {
    offset = (packing.bytes + 255) / 256 * 256;
    packing.bytes = offset + std::size_t(std::min(bytes(packed), 0x1p62));  // more than any device has
  };
  if (c.pack_b) place(b, packing.offset_b), packing.blocks_b = blocks(b, transposed_b);
  if (c.pack_a) place(a, packing.offset_a), packing.blocks_a = blocks(a, transposed_a);
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
