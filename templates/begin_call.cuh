// The kernel that begins a call of several ranks. It tells the others that the calls before are over here, and ends
// when they have read what this call's staging memory held before: as two take turns mostly at once, as a graph that is
// launched again has the same one each time.
#pragma once
#include "begin_call_arguments.cuh"
#include "ide.cuh"
#include "ptx/barrier.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/global.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/system.cuh"
#include "wait_for_rank.cuh"

namespace jitgemm::device {

constexpr int BEGIN_CALL_THREADS = 32;  // one warp, a lane for each rank
static_assert(most_ranks <= BEGIN_CALL_THREADS);

__device__ __forceinline__ void begin_call(const BeginCallArguments& args) {
  const int rank = int(ptx::thread_index());
  if constexpr (DEPENDENT_LAUNCH) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
  }
  const u32 before = ptx::ld_global<u32>(args.epoch);
  if (rank < args.ranks && rank != args.rank) {
    ptx::st_release_sys(args.finished_at[rank], before);
    wait_for_rank(args.patience, args.finished + rank, ptx::ld_global<u32>(args.last_use), rank);
  }
  ptx::warp_sync();  // all have read what is written now
  if (rank == 0) {
    ptx::st_global(args.last_use, before + 1);
    ptx::st_global(args.epoch, before + 1);
  }
}

}  // namespace jitgemm::device
