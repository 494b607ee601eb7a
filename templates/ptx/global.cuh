// Loads and stores of global memory. The address is a multiple of the access size.
#ifndef JITGEMM_EMULATOR
namespace jitgemm::device::ptx {

__device__ __forceinline__ u16 ld_global_u16(const void* address) { return *static_cast<const u16*>(address); }
__device__ __forceinline__ u32 ld_global_u32(const void* address) { return *static_cast<const u32*>(address); }
__device__ __forceinline__ float ld_global_f32(const void* address) { return *static_cast<const float*>(address); }
__device__ __forceinline__ void ld_global_v2_f32(const float* address, float& x, float& y) {
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "l"(address) : "memory");
}

__device__ __forceinline__ void st_global_u16(void* address, u16 x) { *static_cast<u16*>(address) = x; }
__device__ __forceinline__ void st_global_u32(void* address, u32 x) { *static_cast<u32*>(address) = x; }
__device__ __forceinline__ void st_global_f32(void* address, float x) { *static_cast<float*>(address) = x; }
__device__ __forceinline__ void st_global_v2_f32(float* address, float x, float y) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(address), "f"(x), "f"(y) : "memory");
}

/// Cached in L2 alone: for data that another block wrote during this launch, or will read.
__device__ __forceinline__ void ld_global_cg_v4(const float* address, float (&x)[4]) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "l"(address)
               : "memory");
}
__device__ __forceinline__ void st_global_cg_v4(float* address, float x, float y, float z, float w) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}

/// Returns the old value and stores old >= limit ? 0 : old + 1. Releases this thread's earlier writes, and those of the
/// threads that it has synchronised with, to whoever acquires; acquires theirs.
__device__ __forceinline__ u32 atom_inc_acq_rel_gpu(u32* address, u32 limit) {
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(limit) : "memory");
  return old;
}

}  // namespace jitgemm::device::ptx
#endif
