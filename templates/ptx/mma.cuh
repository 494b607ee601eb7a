// Tensor cores since sm_80, one warp: d (16 x 8) += a (16 x K) * b (K x 8), where K elements are 32 bytes.
// With g = lane / 4 and t = lane % 4, a thread holds of the K-major rows of a and columns of b 4 bytes a register:
//   a: bytes 4t.. of rows g and g + 8 (registers 0 and 1), bytes 16 + 4t.. of the same (2 and 3)
//   b: bytes 4t.. (b0) and 16 + 4t.. (b1) of column g
//   d: row g, columns 2t, 2t+1 (0 and 1), row g + 8, the same columns (2 and 3)
// TF32 ignores the lower 13 bits. Sums of integers wrap. E4M3 and E5M2 need sm_89.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

// clang-format off
#define MMA_M16N8(A, B, ACCUMULATOR, CONSTRAINT, SHAPE_AND_TYPES)                                                             \
  __device__ __forceinline__ void mma_m16n8(A, B, ACCUMULATOR (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {                   \
    asm volatile("mma.sync.aligned." SHAPE_AND_TYPES " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"       \
                 : CONSTRAINT(d[0]), CONSTRAINT(d[1]), CONSTRAINT(d[2]), CONSTRAINT(d[3])                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                             \
  }
MMA_M16N8(F16, F16, float, "+f", "m16n8k16.row.col.f32.f16.f16.f32")
MMA_M16N8(BF16, BF16, float, "+f", "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA_M16N8(TF32, TF32, float, "+f", "m16n8k8.row.col.f32.tf32.tf32.f32")
MMA_M16N8(E4M3, E4M3, float, "+f", "m16n8k32.row.col.f32.e4m3.e4m3.f32")
MMA_M16N8(E4M3, E5M2, float, "+f", "m16n8k32.row.col.f32.e4m3.e5m2.f32")
MMA_M16N8(E5M2, E4M3, float, "+f", "m16n8k32.row.col.f32.e5m2.e4m3.f32")
MMA_M16N8(E5M2, E5M2, float, "+f", "m16n8k32.row.col.f32.e5m2.e5m2.f32")
MMA_M16N8(s8, s8, int, "+r", "m16n8k32.row.col.s32.s8.s8.s32")
#undef MMA_M16N8
// clang-format on

/// Double precision: rows g and g + 8, column t of a; row t, column g of b.
__device__ __forceinline__ void mma_m16n8k4(double (&d)[4], double a0, double a1, double b) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
               : "d"(a0), "d"(a1), "d"(b));
#else
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(d[0]), "+d"(d[1])
               : "d"(a0), "d"(b));
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(d[2]), "+d"(d[3])
               : "d"(a1), "d"(b));
#endif
}

}  // namespace jitgemm::device::ptx
#endif
