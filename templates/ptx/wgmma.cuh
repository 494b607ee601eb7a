// sm_90a: tensor cores fed from shared memory by a warpgroup (4 warps, the first a multiple of 4).
// d (64 x N) = a (64 x K) * b (K x N) + (accumulate ? d : 0), where K elements are 128 bytes, as four instructions of
// 32 bytes; asynchronous: between wgmma_fence and wgmma_wait_group the registers of d belong to the tensor cores. With
// w the warp of the group, g = lane / 4 and t = lane % 4, d[4j + 2h + e] is row 16w + g + 8h, column 8j + 2t + e.
//
// a and b are the first instruction's shared-memory descriptors (wgmma_descriptor), from one to the next STEP_A and
// STEP_B on. TRANSPOSE_A: a of 16-bit elements lies M-major, else K-major; TRANSPOSE_B: N-major.
#pragma once
#include "../ide.cuh"
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

/// Orders earlier accesses of the accumulator registers, and of shared memory by this thread, before the next wgmma.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most PENDING committed groups are unfinished.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/// The warpgroup's registers a thread from here on: a multiple of 8 in 24..256. All of its warps call it.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// An asm statement knows its operands by their numbers, which depend on how many d has. So the top of the kernel names
// them, for each N of WGMMA_WIDTHS: WGMMA_D_N is what an instruction says of d, WGMMA_D_OPERANDS_N what the statement
// says of it; WGMMA_A_N to WGMMA_TRANSPOSE_B_N are the operands behind d, in this order. WGMMA_TYPES is the one
// function that the kernel has for each. Four statements instead of one take 5 % longer to compile. WGMMA_D_ACCESS is
// "+", of what is read and written, or "=" where no call accumulates and calls are of several N: with "+" the compiler
// carries d's registers from one call to the next, and ptxas finds no place for those of all N (C7511). With one N it
// is
// "+", too: with "=" 256x128 with scales of blocks spills 88 bytes.
// clang-format off
#define WGMMA(N, DEPTH_AND_TYPES, ACCUMULATE, MODIFIERS)                                                                      \
  " wgmma.mma_async.sync.aligned.m64n" #N DEPTH_AND_TYPES " " WGMMA_D_##N ", a, b, " ACCUMULATE MODIFIERS ";"
#define WGMMA_NEXT(N) " add.s64 a, a, " WGMMA_STEP_A_##N "; add.s64 b, b, " WGMMA_STEP_B_##N ";"
#define WGMMA_K_BLOCK(N, A, B, ACCUMULATOR, CONSTRAINT, DEPTH_AND_TYPES, MODIFIERS)                                           \
  template <bool TRANSPOSE_A, bool TRANSPOSE_B, u32 STEP_A, u32 STEP_B>                                                       \
  __device__ __forceinline__ void wgmma_k_block(A, B, ACCUMULATOR (&d)[N / 2], u64 a, u64 b, bool accumulate) {               \
    asm volatile("{ .reg .pred p; .reg .b64 a, b;"                                                                            \
                 " mov.b64 a, " WGMMA_A_##N "; mov.b64 b, " WGMMA_B_##N "; setp.ne.b32 p, " WGMMA_ACCUMULATE_##N ", 0;"       \
                 WGMMA(N, DEPTH_AND_TYPES, "p", MODIFIERS) WGMMA_NEXT(N) WGMMA(N, DEPTH_AND_TYPES, "1", MODIFIERS)            \
                 WGMMA_NEXT(N) WGMMA(N, DEPTH_AND_TYPES, "1", MODIFIERS) WGMMA_NEXT(N)                                        \
                 WGMMA(N, DEPTH_AND_TYPES, "1", MODIFIERS) " }"                                                               \
                 : WGMMA_D_OPERANDS_##N(CONSTRAINT)                                                                           \
                 : "l"(a), "l"(b), "r"(int(accumulate)), "n"(STEP_A), "n"(STEP_B), "n"(TRANSPOSE_A), "n"(TRANSPOSE_B));       \
  }
// The modifiers: that neither floating-point operand is negated; of 16-bit ones, which is transposed.
#define WGMMA_16_BIT(N) ", 1, 1, " WGMMA_TRANSPOSE_A_##N ", " WGMMA_TRANSPOSE_B_##N
#define WGMMA_f16_f16(N) WGMMA_K_BLOCK(N, F16, F16, float, WGMMA_D_ACCESS "f", "k16.f32.f16.f16", WGMMA_16_BIT(N))
#define WGMMA_bf16_bf16(N) WGMMA_K_BLOCK(N, BF16, BF16, float, WGMMA_D_ACCESS "f", "k16.f32.bf16.bf16", WGMMA_16_BIT(N))
#define WGMMA_tf32_tf32(N) WGMMA_K_BLOCK(N, TF32, TF32, float, WGMMA_D_ACCESS "f", "k8.f32.tf32.tf32", ", 1, 1")
#define WGMMA_e4m3_e4m3(N) WGMMA_K_BLOCK(N, E4M3, E4M3, float, WGMMA_D_ACCESS "f", "k32.f32.e4m3.e4m3", ", 1, 1")
#define WGMMA_e4m3_e5m2(N) WGMMA_K_BLOCK(N, E4M3, E5M2, float, WGMMA_D_ACCESS "f", "k32.f32.e4m3.e5m2", ", 1, 1")
#define WGMMA_e5m2_e4m3(N) WGMMA_K_BLOCK(N, E5M2, E4M3, float, WGMMA_D_ACCESS "f", "k32.f32.e5m2.e4m3", ", 1, 1")
#define WGMMA_e5m2_e5m2(N) WGMMA_K_BLOCK(N, E5M2, E5M2, float, WGMMA_D_ACCESS "f", "k32.f32.e5m2.e5m2", ", 1, 1")
#define WGMMA_s8_s8(N) WGMMA_K_BLOCK(N, s8, s8, int, WGMMA_D_ACCESS "r", "k32.s32.s8.s8", "")
WGMMA_WIDTHS(WGMMA_TYPES)
#undef WGMMA_K_BLOCK
#undef WGMMA_NEXT
#undef WGMMA
// clang-format on

}  // namespace jitgemm::device::ptx
#endif
