#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "context_internals.hpp"
#include "core/rank_problem.hpp"
#include "parallel/kernel_patience.hpp"
#include "parallel/symmetric_memory.hpp"
#include "tune/device_memory.hpp"

namespace jitgemm {

/// Sums of small results, all-reduced in one step by a kernel behind the product (templates/one_shot.cuh). Its calls
/// are numbered in device memory, apart from those of Overlapped, and each has one of two buffers in turn. Thread-safe.
class OneShot {
 public:
  /// Whether the problem, an all_reduce_d that communicates, is expected to take less time so than by NCCL, with no
  /// more than so much staging memory; `why` says both times, or what forbids it.
  static bool is_chosen(const RankProblem& problem, std::size_t most_staging_bytes, std::string& why);
  static double expected_us(const RankProblem& problem);
  static std::size_t received_bytes(const RankProblem& problem);  ///< in a call, by each rank
  static std::size_t memory_bytes(const RankProblem& problem);    ///< of each rank, for what comes
  /// Of no other rank yet.
  OneShot(Context& context, int rank, int ranks, AllGatherBytes all_gather, double timeout_seconds);

  /// Collective. Makes memory for what needs so many bytes, at least. Throws Error{no_device} on all ranks where their
  /// devices do not reach each other.
  void grow(std::size_t memory_bytes);
  struct Prepared {
    std::shared_ptr<const Kernel> kernel;
    std::int64_t items = 0;  ///< that threads have one by one
    std::size_t memory_bytes = 0;
    std::shared_ptr<SymmetricMemory> received;
  };
  /// Compiles. No capture allows it, nor stage().
  Prepared prepare(const RankProblem& problem) const;
  /// Collective. Gives it memory.
  void stage(Prepared& prepared);
  /// Collective. D = epilogue(sum over ranks), asynchronous on the stream. `finish`: rank_problem()'s; `sums`: this
  /// rank's, of its C's type, packed; D may be that. The ranks enqueue their calls in the same order, and their devices
  /// run them in it.
  void enqueue(const Prepared& prepared, const NormalProblem& finish, const Operands& operands, const void* sums,
               Stream stream) const;

  /// As if there had been so many calls. Of all ranks alike, between calls.
  void count_from(unsigned calls) const;
  device::Patience::Report report() const { return patience_.report(); }
  void abort() noexcept { patience_.abort(); }

 private:
  struct Epoch;

  Context& context_;
  Backend& backend_;
  int rank_, ranks_;
  AllGatherBytes all_gather_;
  KernelPatience patience_;
  DeviceMemory epoch_;
  std::mutex mutex_;                                        // of what follows
  std::vector<std::shared_ptr<SymmetricMemory>> received_;  // the last one is the largest; graphs may use the others
};

}  // namespace jitgemm
