// The portable main loop's geometry: how a tile is dealt out to warps, what lies in shared memory, how many registers a
// thread takes, and which configurations there are.
#ifndef JITGEMM_GEOMETRY_SM80_CUH
#define JITGEMM_GEOMETRY_SM80_CUH
#include "geometry.cuh"

namespace jitgemm::device::sm80 {

struct Geometry {
  int threads;
  int warps_m, warps_n;  // of the tile; a warp's part is warp_m x warp_n
  int warp_m, warp_n;
  int accumulators;           // of a thread
  int accumulator_registers;  // 4 bytes each
  int ctas_per_sm;            // by registers
  int stage_bytes, queue_bytes, smem_align, smem_bytes;
};

constexpr int queue_entry_bytes = 32;  // of the queue between loading and multiplying, which has one more than stages

constexpr Geometry geometry(const KernelParameters& p) {
  Geometry g{};
  g.threads = 32 * max_of(1, p.warps);
  // The split whose warp tiles are nearest to square reads least from shared memory; ties go to wider ones.
  g.warps_m = max_of(1, p.warps);
  g.warps_n = 1;
  int least = 0;
  for (int m = 1; m <= p.warps; m *= 2) {
    const int n = p.warps / m;
    if (p.block_m % (16 * m) != 0 || p.block_n % (16 * n) != 0) continue;
    const int edges = p.block_m / m + p.block_n / n;
    if (least != 0 && edges >= least) continue;
    least = edges;
    g.warps_m = m;
    g.warps_n = n;
  }
  g.warp_m = p.block_m / g.warps_m;
  g.warp_n = p.block_n / g.warps_n;
  g.accumulators = g.warp_m * g.warp_n / 32;
  g.accumulator_registers = g.accumulators * p.size_accumulator / 4;

  const int a_bytes = p.block_m * p.block_k * p.size_a, b_bytes = p.block_n * p.block_k * p.size_a;
  const int row_a = (p.a_k_major ? p.block_k : p.block_m) * p.size_a,
            row_b = (p.b_k_major ? p.block_k : p.block_n) * p.size_a;
  g.stage_bytes = a_bytes + b_bytes;
  g.queue_bytes = (p.stages + 1) * queue_entry_bytes;
  g.smem_align = max_of(128, max_of(row_a, row_b));  // exclusive ors of addresses need it; all banks
  g.smem_bytes = p.stages * g.stage_bytes + g.queue_bytes + g.smem_align;

  // Accumulators, two sets of fragments, operands that pass through registers and what addresses take, of 65536
  // registers an SM. On Hopper one warp issues an mma every 22 cycles where its tensor core takes 6, so it is several
  // warps that keep it busy.
  const int fragments = p.tensor_cores ? 2 * (g.warp_m + g.warp_n) / 4 : 2 * (g.warp_m / 8 + g.warp_n / 4) * 4;
  const int held = ((p.align_a < 4) * a_bytes + (p.align_b < 4) * b_bytes) / 4 / g.threads;
  const int registers = ((p.block_scales ? 2 : 1) * g.accumulator_registers + fragments + held + 56) * g.threads;
  g.ctas_per_sm = registers > 65536 ? 1 : 65536 / registers;
  return g;
}

/// The rule that the parameters break, null if none.
constexpr const char* broken_rule(const KernelParameters& p) {
  if (!are_in_range(p)) return "tile, stages and warps are in 1..1024";
  const int k_bytes = p.block_k * p.size_a;
  if (k_bytes != 128 && (k_bytes != 64 || p.size_a == 8)) return "block_k is 64 or 128 bytes, of f64 128";
  if (!is_power_of_two(p.block_m) || !is_power_of_two(p.block_n) || p.block_m < 32 || p.block_n < 32 ||
      p.block_m > 256 || p.block_n > 256)
    return "block_m and block_n are powers of two in 32..256";
  if (p.scales_d) return "the sm80 main loop gives D no scales of its own: sm_90 has a loop that does";
  if (!is_power_of_two(p.warps) || p.warps > 16) return "warps is a power of two, 16 at most";
  const Geometry g = geometry(p);
  if (g.warp_m % 16 != 0 || g.warp_n % 16 != 0 || g.warps_m * g.warps_n != p.warps)
    return "a warp's tile is a multiple of 16 x 16";
  const int chunk = 16 / p.size_a;  // elements
  if (p.block_m * k_bytes / 16 % g.threads != 0 || p.block_n * k_bytes / 16 % g.threads != 0 ||
      (!p.a_k_major && p.block_m / chunk > g.threads) || (!p.b_k_major && p.block_n / chunk > g.threads))
    return "every thread copies the same number of 16-byte chunks";
  // A thread has 255 registers; the fragments and addresses take about 100, without tensor cores 40 more.
  if (g.accumulator_registers > 128) return "a thread holds at most 128 registers of accumulators";
  if ((!p.tensor_cores || p.align_a < 4 || p.align_b < 4) && g.accumulator_registers > 64)
    return "a thread that multiplies without tensor cores, or holds operands aligned to less than 4 bytes in "
           "registers, holds at most 64 registers of accumulators";
  if (p.block_scales && g.accumulator_registers > 64)
    return "a thread that scales blocks of k holds at most 64 registers of accumulators, and as many of the block's";
  if (p.stages < 2 || p.stages > 8) return "at least 2 stages, and 8 at most";
  if (p.cluster_m != 1 || p.cluster_n != 1 || p.cluster_k != 1 || p.cluster_at_launch || p.ping_pong || p.swap_ab)
    return "clusters, ping-pong and swapped operands are of the sm90 main loop";
  return nullptr;
}

}  // namespace jitgemm::device::sm80
#endif
