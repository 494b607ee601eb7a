#pragma once

#include "backend/emulator/launch.hpp"

// What the kernel calls through device::emulator::Interface, on behalf of the current thread.
namespace jitgemm::emulator {

// barriers.cpp
void bar_sync(u32 id, u32 threads);
bool bar_red_or(u32 id, u32 threads, bool predicate);
void warp_sync();
u32 warp_uniform(u32 value);
void mbarrier_init(u32 barrier, u32 count);
void fence_mbarrier_init();
void mbarrier_arrive(u32 barrier);
void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes);
void mbarrier_wait_parity(u32 barrier, u32 parity);
void fence_proxy_async();

// cluster.cpp
u32 cluster_rank();
void cluster_arrive();
void cluster_arrive_relaxed();
void cluster_wait();
u32 map_to_rank(u32 address, u32 rank);
void mbarrier_arrive_cluster(u32 mapped);
void st_cluster_v4(u32 mapped, const void* data);

// shared_memory.cpp
void st_shared(u32 address, const void* data, u32 bytes);
void ld_shared(u32 address, void* data, u32 bytes);
void ldmatrix_x4(u32 address, u32* x, bool transposed);
void stmatrix(u32 address, const u32* x, u32 matrices, bool transposed);

// global_memory.cpp
void griddepcontrol_wait();
void griddepcontrol_launch_dependents();
void check_dependencies(const char* operation);
void misaligned_global(const void* address, u32 bytes);
void ld_global_cg(const void* address, void* data);
void st_global_cg(void* address, const void* data);
u32 atom_inc_acq_rel_gpu(u32* address, u32 limit);

// copies.cpp
void cp_async(u32 shared, const void* global, u32 size, u32 bytes);
void cp_async_commit_group();
void cp_async_wait_group(u32 pending);
void tma_load_3d(u32 shared, const void* map, u32 barrier, int inner, int outer, int batch);
void tma_load_multicast_3d(u32 shared, const void* map, u32 barrier, int inner, int outer, int batch,
                           unsigned short blocks);
void tma_store_3d(const void* map, u32 shared, int inner, int outer, int batch);
void tma_store_commit_group();
void tma_store_wait_group_read(u32 pending);

// tensor_core.cpp, wgmma.cpp
void mma(TensorType a_type, TensorType b_type, void* d, const void* a, const void* b);
void wgmma_fence();
void wgmma_commit_group();
void wgmma_wait_group(u32 pending);
void wgmma(TensorType a_type, TensorType b_type, u32 n, bool transpose_a, bool transpose_b, void* d,
           unsigned long long a, unsigned long long b, bool accumulate);
void setmaxnreg(u32 registers, bool increase);

}  // namespace jitgemm::emulator
