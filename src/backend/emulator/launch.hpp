#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "backend/emulator/clock.hpp"
#include "backend/emulator/device.hpp"
#include "backend/emulator/fibers.hpp"
#include "backend/emulator/global_memory.hpp"
#include "backend/emulator/shared_memory.hpp"

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
struct WgmmaScratch;
class Launch;

/// When asynchronous work takes effect between its issue and the wait that guarantees it.
using Asynchrony = EmulatorAsynchrony;

/// What all threads of a warp do together.
enum class Collective : std::uint8_t {
  none,
  warp_sync,
  warp_uniform,
  ldmatrix,
  ldmatrix_trans,
  stmatrix_x2,
  stmatrix_x4,
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

/// A TMA store that still reads shared memory.
struct PendingStore {
  device::TensorMap map;
  u32 shared, group;
  int inner, outer, batch;
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
  Stamp remote_stores;  // its stores to other blocks
  Stamp inits;          // what it did before its last fence_mbarrier_init
  struct Fence {
    u32 time;
    SharedClock known;
  };
  std::vector<Fence> fences;  // each fence_proxy_async and what it knew then, in a cluster of several blocks

  u32 copy_group = 1, last_copy_group = 0;  // the open one; the last one that copies
  u32 store_group = 1, last_store_group = 0;
  std::vector<PendingCopy> pending_copies;
  std::vector<PendingStore> pending_stores;

  bool knows(Stamp s) const {
    if (known.knows(s) || s.entity == entity) return true;
    return knows_own(s, copies) || knows_own(s, stores) || knows_own(s, wgmmas) || knows_own(s, fenced) ||
           knows_own(s, copies_fenced) || knows_own(s, remote_stores);
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
  int inner, outer, batch;
};

/// What an entity is that is not a thread.
struct EntityInfo {
  const char* name;  // a format for `of` and a time
  u32 of;
  const Thread* copier = nullptr;  // whose cp.async it is
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
  SharedClock merged, completed;
  std::vector<Thread*> waiting;
};

/// Blocks that run at the same time and reach each other's shared memory. All blocks are in one, mostly alone.
struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;  // by rank
  u32 threads = 0;                             // of all blocks
  u32 alive = 0;                               // threads
  ClusterBarrier barrier;
  std::vector<EntityInfo> entities;   // those after the threads
  std::vector<Entity> remote_stores;  // of each thread that did any
  ClusterGlobalMemory global;

  bool has_peers() const { return blocks.size() > 1; }
  const Thread& thread(Entity e) const {
    const u32 each = threads / u32(blocks.size());
    return blocks[e / each]->threads[e % each];
  }
};

/// One launch: the resident blocks, who runs next, and the first fault.
class Launch {
 public:
  struct Options {
    int grid = 0, threads = 0, cluster = 1;
    bool dependent = false;  // earlier launches may still run
    std::size_t smem_bytes = 0;
    std::vector<u32> ctas = {};  // clusters that run; empty: all
    int resident = 1;
    u64 seed = 0;
    Asynchrony asynchrony = Asynchrony::at_issue;
    u64 step_cap = 0;
  };

  /// `kernel` is what each thread runs.
  Launch(const Options& options, std::function<void()> kernel);
  ~Launch();

  /// Throws Error{emulator_fault}.
  void run();

  // For the threads.
  bool adversarial() const { return options_.seed != 0; }
  u32 grid() const { return u32(options_.grid); }
  u32 threads() const { return u32(options_.threads); }
  bool is_dependent() const { return options_.dependent; }
  u32 cluster_size() const { return u32(options_.cluster); }
  u64 random();
  bool chance(u32 one_in) { return random() % one_in == 0; }

  /// Stops the current thread until somebody wakes it.
  void wait(Wait what, u32 address = 0, u32 detail = 0);
  void wake(Thread& thread);
  void wake_lanes(Warp& warp, u32 lanes);
  /// In adversarial mode, lets others go first or asynchronous work take effect, now and then.
  void preempt() {
    if (++steps_ > options_.step_cap) fault("no end after %llu steps", (unsigned long long)options_.step_cap);
    if (adversarial()) preempt_slowly();
  }
  /// Whether asynchronous work that is issued now takes effect at once.
  bool acts_at_issue();

  void wait_for_dependencies(Thread& thread) {
    thread.dependencies_ended = true;
    some_thread_waited_ = true;
  }
  /// Before an access of global memory.
  void check_dependencies(const Thread& thread, const char* operation) {
    if (!thread.dependencies_ended)
      fault("%s without a griddepcontrol_wait by this thread: the launch before may still run", operation);
  }

  /// Ends the launch. `format` and the rest as of printf; the current block and thread are put in front.
  [[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 2, 3)));

  std::vector<PendingLoad>& loads() { return loads_; }
  ClockJoiner& joiner() { return joiner_; }
  LaunchGlobalMemory& global() { return global_; }
  WgmmaScratch& wgmma_scratch();  // of the first wgmma on

 private:
  void start_cluster(Cluster& cluster, u32 index);
  void start_block(Block& block, u32 index, u32 smem_base);
  void check_finished(Block& block);
  [[noreturn]] void run_thread();
  static void thread_main();
  void preempt_slowly();
  Thread* choose(const Warp* current, u32 current_lane);
  Thread* choose_lane(Warp& warp, u32 after);
  void dispatch();
  bool fire(bool any);
  std::string hang_report() const;
  void set_ready(const Warp& warp, bool ready);

  Options options_;
  std::function<void()> kernel_;
  Fiber host_;
  Thread* running_ = nullptr;                       // null on the host's stack
  std::vector<std::unique_ptr<Cluster>> clusters_;  // resident
  std::vector<Warp*> slots_;
  std::vector<u64> ready_;  // bit per slot
  bool reconsider_ = false;
  u64 random_state_;
  u64 steps_ = 0;
  u64 lowest_priority_ = u64(1) << 62;
  Cluster* finished_ = nullptr;
  bool some_thread_waited_ = false;
  std::string fault_;
  std::vector<PendingLoad> loads_;
  ClockJoiner joiner_;
  LaunchGlobalMemory global_;
  std::unique_ptr<WgmmaScratch> wgmma_scratch_;
};

/// The thread that runs, for code on a fiber.
struct Current {
  [[gnu::always_inline]] Thread& operator*() const { return *static_cast<Thread*>(own_stack_top().owner); }
  [[gnu::always_inline]] Thread* operator->() const { return &**this; }
};
inline constexpr Current current;

/// Arrives at a collective; true for the last lane of the warp, which carries it out and calls finish_collective(). The
/// others come back when it has.
bool arrive(Thread& thread, Collective collective);
void finish_collective(Warp& warp);

// Happens-before.
/// `merged` is the latest that went into `clock`, which need not go in again.
void release_to(Clock& clock, SharedClock& merged, Thread& thread);
void acquire(Thread& thread, const SharedClock& clock);

/// Thrown by fault() while no thread runs.
struct HostFault {};

/// Text for faults, without allocation: the stack it is on may be abandoned.
struct Description {
  char text[128];
};
Description describe(const Cluster& cluster, Stamp stamp);

}  // namespace jitgemm::emulator
