// What is resident: threads, warps, blocks and clusters, their barriers and their unfinished work.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "backend/emulator/clock.hpp"
#include "backend/emulator/device.hpp"
#include "backend/emulator/fibers.hpp"
#include "backend/emulator/global_memory.hpp"
#include "backend/emulator/shared_memory.hpp"
#include "core/kernel_interface.hpp"

namespace jitgemm::emulator {

using device::u16;
using device::u32;
using device::u64;
using device::emulator::TensorType;

constexpr u32 all_lanes = 0xffffffff;

struct Block;
struct Cluster;
struct Warp;
struct Warpgroup;
class Launch;

/// What all threads of a warp do together.
enum class Collective : std::uint8_t {
  none,
  warp_sync,
  warp_uniform,
  shuffle,
  shuffle_up,
  ballot,
  ldmatrix,
  ldmatrix_trans,
  stmatrix_x1,
  stmatrix_x2,
  stmatrix_x4,
  stmatrix_x1_trans,
  stmatrix_x2_trans,
  stmatrix_x4_trans,
  mma,
  wgmma_fence,
  wgmma,
  wgmma_commit_group,
  wgmma_wait_group,
  setmaxnreg,
};
const char* to_string(Collective collective);

enum class Wait : std::uint8_t { nothing, collective, warpgroup, barrier, mbarrier, cluster, registers, finished };

/// A cp.async that has not taken effect.
struct PendingCopy {
  u32 shared, size, bytes, group;
  const void* global;
};

/// A box's first element, by the dimensions of its tensor map.
struct BoxPlace {
  int inner = 0, outer = 0, pair = 0, group = 0, batch = 0;
};

/// A TMA store that still reads shared memory.
struct PendingStore {
  device::TensorMap map;
  u32 shared, group;
  BoxPlace place;
};

struct Thread {
  Fiber fiber;
  Launch* launch = nullptr;
  Block* block = nullptr;
  Warp* warp = nullptr;
  u32 index = 0, lane = 0;
  Entity entity = 0;

  Wait wait = Wait::nothing;
  u32 wait_address = 0, wait_detail = 0;  // barrier id or mbarrier address; thread count or parity

  bool at_cluster_barrier = false;  // has arrived, and not waited
  u32 cluster_phase = 0;            // that it has arrived in
  bool dependencies_ended = true;   // the launches before, as far as it knows

  // What it knows of the others, and its own stamps, which `known` may lag behind.
  SharedClock known;
  Stamp now;            // its ordinary accesses
  Stamp copies;         // its cp.async groups that are complete; entity 0 until there is one
  Stamp copies_fenced;  // of these, those before a fence_proxy_async
  Stamp stores;         // its groups of TMA stores that have read shared memory
  Stamp fenced;         // its accesses before a fence_proxy_async
  Stamp wgmmas;         // its warpgroup's wgmma groups that it waited for
  Stamp inits;          // what it did before its last fence_mbarrier_init
  struct Fence {
    u32 time;
    SharedClock known;
  };
  std::vector<Fence> fences;  // each fence_proxy_async and what it knew then, in a cluster of several blocks

  u32 copy_group = 1, last_copy_group = 0;  // the open one; the last one that copies
  u32 store_group = 1, last_store_group = 0;
  u32 written_group = 0,
      published_group = 0;                 // of stores: there for this thread; and behind a fence_proxy_async_global
  bool acquired_by_generic_proxy = false;  // from another device, with no fence_proxy_async_global since
  std::vector<PendingCopy> pending_copies;
  std::vector<PendingStore> pending_stores;

  bool knows(Stamp s) const {
    if (known.knows(s) || s.entity == entity) return true;
    return knows_own(s, copies) || knows_own(s, stores) || knows_own(s, wgmmas) || knows_own(s, fenced) ||
           knows_own(s, copies_fenced);
  }

 private:
  static bool knows_own(Stamp s, Stamp own) { return s.entity == own.entity && own.entity != 0 && s.time <= own.time; }
};

/// What the lanes of a warp hand in for a collective operation, until the last one carries it out for all.
struct LaneArguments {
  void* result;
  const void *a, *b;
  TensorType a_type, b_type;
  u32 x[4];
  u64 descriptors[2];
};

struct Warp {
  Block* block = nullptr;
  int slot = 0;      // among the resident warps
  u32 first = 0;     // its first thread
  u32 runnable = 0;  // lanes
  u32 arrived = 0;   // lanes at the collective
  u32 exited = 0;    // lanes
  u64 priority = 0;
  Collective collective = Collective::none;
  LaneArguments lanes[32];
};

/// bar.sync 0..15.
struct NamedBarrier {
  u32 threads = 0;  // expected; 0: nobody has arrived
  u32 arrived = 0;
  bool reducing = false, any = false, result = false;
  std::vector<Thread*> waiting;
};

struct Mbarrier {
  u32 address = 0, count = 0;
  int pending = 0;
  long long bytes = 0;  // signed: data may land before it is announced
  u32 phase = 0;        // completed
  Entity entity = 0;    // the copies that complete on it, by phase
  Entity stores = 0;    // the same of st_async_cluster; 0 until there is one
  Stamp initialised;
  Stamp fenced;    // of the fence_mbarrier_init
  Clock arriving;  // what the arrived threads knew
  SharedClock merged, completed;
  u32 outstanding = 0;  // TMA loads
  std::vector<Thread*> waiting;
};

/// A TMA load that has not landed.
struct PendingLoad {
  Block* block;
  device::TensorMap map;
  u32 shared, barrier;
  BoxPlace place;
};

/// What an entity is that is not a thread.
struct EntityInfo {
  const char* name;  // a format for `of` and a time
  u32 of;
  const Thread* copier = nullptr;  // whose cp.async it is
  bool stores_from_peers = false;  // by st_async_cluster
  u32 block = 0;
};

struct Block {
  Launch* launch = nullptr;
  Cluster* cluster = nullptr;
  int slot = 0;
  u32 index = 0;
  u32 alive = 0;  // threads
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<std::unique_ptr<Warpgroup>> warpgroups;
  std::unique_ptr<Stacks> stacks;
  SharedMemory memory;
  NamedBarrier barriers[16];
  std::deque<Mbarrier> mbarriers;
  Clock remote_accesses;   // by other blocks of the cluster, and multicast loads
  u32 free_registers = 0;  // that setmaxnreg_dec gave up
  std::vector<Thread*> waiting_for_registers;

  Block();
  ~Block();
  Entity add_entity(const EntityInfo& info);
};

/// barrier.cluster.
struct ClusterBarrier {
  u32 arrived = 0;  // threads
  u32 phase = 0;    // completed
  Clock arriving;
  SharedClock completed;
  std::vector<Thread*> waiting;
};

/// Blocks that run at the same time and reach each other's shared memory. All blocks are in one, mostly alone.
struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;  // by rank
  u32 threads = 0;                             // of all blocks
  u32 alive = 0;                               // threads
  ClusterBarrier barrier;
  std::vector<EntityInfo> entities;  // those after the threads
  ClusterGlobalMemory global;

  bool has_peers() const { return blocks.size() > 1; }
  const Thread& thread(Entity e) const {
    const u32 each = threads / u32(blocks.size());
    return blocks[e / each]->threads[e % each];
  }
};

}  // namespace jitgemm::emulator
