#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "backend/emulator/blocks.hpp"
#include "backend/emulator/system_scope.hpp"

namespace jitgemm::emulator {

struct WgmmaScratch;

/// When asynchronous work takes effect between its issue and the wait that guarantees it.
using Asynchrony = EmulatorAsynchrony;

/// One launch: the resident blocks, who runs next, and the first fault.
class Launch {
 public:
  struct Options {
    int grid = 0, threads = 0, cluster = 1;
    bool all_resident = false;  // clusters, whatever `resident` says
    bool dependent = false;     // earlier launches may still run
    bool holds_next_back = false;
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
  bool holds_next_back() const { return options_.holds_next_back; }
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
  /// Lets others go first, and asynchronous work take effect: the current thread waits for another device.
  void yield();
  /// Whether asynchronous work that is issued now takes effect at once.
  bool acts_at_issue();
  /// A word that other devices see now or, at the latest, when the launch has ended.
  void put_word(u64* address, u64 x) { words_.put(address, x, acts_at_issue()); }

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
  static constexpr std::size_t most_fault_bytes = 1024;  // of a thread: on its stack there may be no memory to be had
  std::string fault_;
  bool out_of_memory_ = false;  // whatever fault_ says
  std::vector<PendingLoad> loads_;
  PendingWords words_;
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
