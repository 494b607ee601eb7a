// How a thread waits for another rank of the node.
#pragma once
#include "ide.cuh"
#include "ptx/global.cuh"
#include "ptx/system.cuh"
#include "shard_arguments.cuh"

namespace jitgemm::device {

/// One wait of a thread, which polls.
class Wait {
  u32 polls = 0;
  u64 begin = 0;

 public:
  /// After a poll in vain: whether no wait makes sense any more, which the report says then. Results count for nothing
  /// after that.
  __device__ __forceinline__ bool is_over(const Patience& patience, int rank, u32 epoch) {
    constexpr u32 POLLS = 64;  // between two looks at the clock, and at memory of the host
    if (++polls % POLLS != 0) return false;
    if (ptx::ld_acquire_sys(&patience.report->state) != Patience::well) return true;
    const u64 now = ptx::global_nanoseconds();
    if (begin == 0) begin = now;
    if (patience.nanoseconds == 0 || now - begin < patience.nanoseconds) return false;
    ptx::st_global(&patience.report->rank, u32(rank));
    ptx::st_global(&patience.report->epoch, epoch);
    ptx::st_release_sys(&patience.report->state, u32(Patience::lost));
    return true;
  }
};

/// Returns when the flag has the epoch or a later one, and what whoever set it had released is there; or when the wait
/// is over.
__device__ __forceinline__ void wait_for_rank(const Patience& patience, const u32* flag, u32 epoch, int rank) {
  Wait wait;
#pragma unroll 1
  while (int(ptx::ld_acquire_sys(flag) - epoch) < 0) {
    ptx::nanosleep(32);
    if (wait.is_over(patience, rank, epoch)) return;
  }
}

}  // namespace jitgemm::device
