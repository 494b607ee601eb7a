// For editors alone: what makes each template a text that clangd reads. It stands for what the generator fills in, with
// the constants of one kernel that both main loops could be (f16, 128 x 128 x 64), and for what NVRTC knows by itself.
// The ide_sm*.cuh add what differs between them. No kernel has a line of these files, nor a template's `#pragma once`
// and `#include "..."`.
#pragma once
#include "geometry.cuh"
#include "schedule.cuh"
#include "types.cuh"

// CUDA.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__

struct Dim3 {
  unsigned x, y, z;
};
extern const __device__ Dim3 threadIdx, blockIdx, gridDim;
__device__ unsigned __shfl_sync(unsigned mask, unsigned value, int lane);
__device__ unsigned __shfl_up_sync(unsigned mask, unsigned value, unsigned by);
__device__ unsigned __ballot_sync(unsigned mask, int predicate);
__device__ int __ffs(int bits);
__device__ int __clz(int bits);
__device__ unsigned __byte_perm(unsigned low, unsigned high, unsigned selector);
__device__ unsigned long long __cvta_generic_to_shared(const void* address);
__device__ float __uint_as_float(unsigned bits);
__device__ double __longlong_as_double(long long bits);
__device__ float __fmaf_rn(float x, float y, float z);
__device__ double __fma_rn(double x, double y, double z);
extern "C" {
__device__ float erff(float x);
__device__ float fabsf(float x);
__device__ double erf(double x);
__device__ double exp2(double x);
}

// wgmma_macros.cpp's, as if d were one register.
#define WGMMA_TYPES WGMMA_f16_f16
#define WGMMA_D_ACCESS "+"
#define WGMMA_D_128 "{%0}"
#define WGMMA_D_OPERANDS_128(C) C(d[0])
#define WGMMA_A_128 "%1"
#define WGMMA_B_128 "%2"
#define WGMMA_ACCUMULATE_128 "%3"
#define WGMMA_STEP_A_128 "%4"
#define WGMMA_STEP_B_128 "%5"
#define WGMMA_TRANSPOSE_A_128 "%6"
#define WGMMA_TRANSPOSE_B_128 "%7"
#define WGMMA_WIDTHS(F) F(128)

namespace jitgemm::device {

// gemm.cu.in's, each with a value.
constexpr int BLOCK_M = 128, BLOCK_N = 128, BLOCK_K = 64;
constexpr int GROUP_M = 8;
constexpr int STAGES = 3;
constexpr int WARPS = 8;
[[maybe_unused]] constexpr int CLUSTER_M = 1, CLUSTER_N = 1, CLUSTER_K = 1;
[[maybe_unused]] constexpr bool CLUSTER_AT_LAUNCH = false;
constexpr bool SWAP_AB = false;
[[maybe_unused]] constexpr bool PING_PONG = false;
[[maybe_unused]] constexpr bool DEPENDENT_LAUNCH = true;
[[maybe_unused]] constexpr bool PROMOTED = false;
constexpr Partition PARTITION = Partition::stream_k;

using ElementA = F16;
using ElementB = F16;
using Accumulator = float;
using ElementCompute = float;
using ElementC = F16;
using ElementD = F16;
constexpr bool A_K_MAJOR = true, B_K_MAJOR = true;
constexpr int ALIGN_A = 16, ALIGN_B = 16, ALIGN_C = 16, ALIGN_D = 16;
constexpr Scalars<bool> NONZERO{true, true, true};
constexpr bool BATCHED = true, READS_C = NONZERO.beta, HAS_SCALES = true;
[[maybe_unused]] constexpr bool MMA_FP8 = true;
constexpr Bias BIAS = Bias::along_n;
constexpr Scaling SCALING_A = Scaling::vector, SCALING_B = Scaling::value;
constexpr Scaling SCALING_D = Scaling::value;
constexpr bool HAS_CUSTOM_EPILOGUE = false;
constexpr Grouping GROUPING = Grouping::none;
constexpr bool B_BY_POINTERS = false;
constexpr Sharding SHARDING = Sharding::none;
constexpr Pairing PAIRING = Pairing::none;
[[maybe_unused]] constexpr bool RAGGED_PAIRS = false;
[[maybe_unused]] constexpr int UP_STEP = 128;

// clang-format off
constexpr KernelParameters PARAMETERS{
    BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS, CLUSTER_M, CLUSTER_N, CLUSTER_K, CLUSTER_AT_LAUNCH, PING_PONG,
    SWAP_AB, PARTITION == Partition::one_tile, PARTITION == Partition::split_k, PROMOTED, true,
    sizeof(ElementA), sizeof(Accumulator), sizeof(ElementD), A_K_MAJOR, B_K_MAJOR, ALIGN_A, ALIGN_B, ALIGN_D,
    is_of_blocks(SCALING_A), SCALING_A == Scaling::block_1x128, SCALING_B == Scaling::block_1x128,
    GROUPING == Grouping::offsets || GROUPING == Grouping::counts, GROUPING == Grouping::offsets,
    SCALING_D == Scaling::block_1x128,
    PAIRING != Pairing::none, false, false, SHARDING == Sharding::scattered_d};
// clang-format on

__device__ ElementCompute activation(ElementCompute x, ElementCompute slope);

// sum_epilogue.cu.in's, and one_shot.cu.in's.
constexpr bool IN_PAIRS = true;
constexpr int ELEMENTS = 4;

// pack.cu.in's.
using Element = u32;
constexpr bool TRANSPOSE_A = true, TRANSPOSE_B = false;
constexpr Pairing INTERLEAVE_B = Pairing::none;

}  // namespace jitgemm::device
