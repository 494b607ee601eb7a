// Tensor cores since sm_80, one warp: d += a * b, 16 x 8 += 16 x 16 * 16 x 8, f32 accumulators.
// With g = lane / 4 and t = lane % 4, a thread holds
//   a: rows g and g + 8, columns 2t, 2t+1 (registers 0 and 1) and 2t+8, 2t+9 (registers 2 and 3)
//   b: column g, rows 2t, 2t+1 (b0) and 2t+8, 2t+9 (b1)
//   d: row g, columns 2t, 2t+1 (0 and 1), row g + 8, the same columns (2 and 3)
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ void mma_m16n8k16(F16, float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_m16n8k16(BF16, float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace jitgemm::device::ptx
#endif
