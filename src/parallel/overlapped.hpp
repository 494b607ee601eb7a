#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "context_internals.hpp"
#include "jitgemm/tensor_parallel.hpp"
#include "parallel/kernel_patience.hpp"
#include "parallel/owned_handles.hpp"
#include "parallel/symmetric_memory.hpp"
#include "plan/ranking.hpp"

namespace jitgemm {

/// Products under which communication runs: A's shards come by copy engines while the kernel multiplies those that are
/// there, and the kernel itself sends partial sums of D. Calls are numbered by an epoch in device memory, and each has
/// one of two staging buffers in turn, so that no rank waits for another before it sends; begin_call.cuh sees to what
/// is left. Collective, but for what says otherwise; thread-safe.
class Overlapped {
 public:
  // Not collective.
  /// Of no other rank yet: makes what a rank may fail at alone, before any waits for it.
  Overlapped(Context& context, int rank, int ranks, AllGatherBytes all_gather, double timeout_seconds);
  /// What this rank would run, so many of the cost model's choices, best predicted first; none with why it would not.
  static std::vector<RankedConfig> ranked(const Context& context, int ranks, const Problem& problem, Exchange exchange,
                                          std::size_t limit, std::string& why_not);
  /// The first of them.
  static std::optional<RankedConfig> choose(const Context& context, int ranks, const Problem& problem,
                                            Exchange exchange, std::string& why_not);
  static std::size_t staging_bytes(int ranks, const Problem& problem, Exchange exchange, const KernelConfig& config);

  // Collective again.
  /// Before any call. Throws Error{no_device} on all ranks where their devices do not reach each other.
  void connect();
  struct Staging;
  struct Prepared {
    NormalProblem problem;
    Exchange exchange = Exchange::all_gather_a;
    Ready ready;
    std::shared_ptr<Staging> staging;
    std::int64_t own_a_ld = 0;
  };
  /// Not collective: compiles. No capture allows it, nor stage().
  Prepared prepare(const Problem& problem, Exchange exchange, const KernelConfig& config) const;
  /// Gives it memory.
  void stage(Prepared& prepared);
  /// Frees what no Prepared has, which is the same on all ranks. Each rank's own calls with it have ended.
  void drop_unused_memory();
  /// Enqueues; `problem` may have other scalars than what was prepared, where those are not 0. The ranks enqueue their
  /// calls in the same order, and their devices run them in it.
  void gemm(const Prepared& prepared, const Problem& problem, const Operands& operands, Stream stream);

  // Not collective.
  device::Patience::Report report() const { return patience_.report(); }
  void abort() noexcept { patience_.abort(); }
  /// All calls from here on have the same staging buffer, as a graph of one has that is launched again and again.
  void take_one_buffer() { buffers_ = 1; }

 private:
  struct Flags;

  void begin(const Staging& staging, int buffer, Stream stream);
  ShardOperands shard_operands(const Prepared& prepared, int buffer) const;
  void send_a(const Prepared& prepared, const Operands& operands, int buffer, Stream stream);
  void check(const Prepared& prepared, const Operands& operands, Stream stream) const;

  Context& context_;
  Backend& backend_;
  int rank_, ranks_;
  AllGatherBytes all_gather_;
  KernelPatience patience_;
  std::shared_ptr<const Kernel> begin_;
  std::optional<SymmetricMemory> flags_;            // once connected
  std::mutex mutex_;                                // of what follows
  std::vector<std::shared_ptr<Staging>> stagings_;  // the last one is the largest; graphs may use the others
  std::uint64_t calls_ = 0;
  unsigned buffers_ = 2;  // that they have in turn
  // Last, so that what was enqueued on them is known before the memory that it uses goes.
  std::vector<OwnedStream> copy_streams_;  // one for each other rank
  std::vector<OwnedEvent> copied_;         // behind the copies
  OwnedEvent begun_;
};

}  // namespace jitgemm
