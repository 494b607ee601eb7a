#include "backend/emulator/matrix_product.hpp"
#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

void mma_m16n8k16(bool bf16, float* d, const u32* a, u32 b0, u32 b1) {
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  LaneArguments& mine = warp.lanes[thread.lane];
  mine.result = d;
  mine.a = a;
  mine.x[0] = b0;
  mine.x[1] = b1;
  if (!arrive(thread, bf16 ? Collective::mma_bf16 : Collective::mma_f16)) return;

  alignas(32) u32 packed_a[16][8], packed_b[8][8];  // pairs along k
  alignas(32) float wide_a[16][16], wide_b[8][16], by_k[16][8], sums[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const LaneArguments& its = warp.lanes[lane];
    const int g = lane / 4, t = lane % 4;
    packed_a[g][t] = its.a[0];
    packed_a[g + 8][t] = its.a[1];
    packed_a[g][t + 4] = its.a[2];
    packed_a[g + 8][t + 4] = its.a[3];
    packed_b[g][t] = its.x[0];
    packed_b[g][t + 4] = its.x[1];
    const float* in = static_cast<const float*>(its.result);
    sums[g][2 * t] = in[0];
    sums[g][2 * t + 1] = in[1];
    sums[g + 8][2 * t] = in[2];
    sums[g + 8][2 * t + 1] = in[3];
  }
  widen(bf16, &packed_a[0][0], &wide_a[0][0], 16 * 8);
  widen(bf16, &packed_b[0][0], &wide_b[0][0], 8 * 8);
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < 8; ++n) by_k[k][n] = wide_b[n][k];
  multiply_add(&wide_a[0][0], &by_k[0][0], &sums[0][0], 16, 8);
  for (int lane = 0; lane < 32; ++lane) {
    float* out = static_cast<float*>(warp.lanes[lane].result);
    const int g = lane / 4, t = lane % 4;
    out[0] = sums[g][2 * t];
    out[1] = sums[g][2 * t + 1];
    out[2] = sums[g + 8][2 * t];
    out[3] = sums[g + 8][2 * t + 1];
  }
  finish_collective(warp);
}

}  // namespace jitgemm::emulator
