#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "jitgemm/context.hpp"
#include "jitgemm/exchange.hpp"
#include "jitgemm/export.hpp"
#include "jitgemm/plan.hpp"
#include "jitgemm/problem.hpp"

struct ncclComm;

namespace jitgemm {

/// An ncclComm_t: the caller's, of one device a rank.
using NcclCommunicator = ::ncclComm*;

enum class Overlap : std::uint8_t {
  automatic,  ///< communication runs under the product where that is faster, as expected or as measured
  none,       ///< NCCL's collective before or after gemm(), always
};

struct TensorParallelOptions {
  Overlap overlap = Overlap::automatic;  ///< rank 0's, for all
  std::size_t staging_bytes = SIZE_MAX;  ///< of device memory at most, for what other ranks send in one product
  /// Until a rank that does not answer counts as lost; 0: never. Of a call that time begins when the device comes to
  /// it, whatever its stream has to do before. Rank 0 does not answer while it tunes its own product: give more than
  /// ContextOptions::tuning_budget_seconds.
  double timeout_seconds = 60;
};

/// How a product across ranks is computed, and what it moves.
struct JITGEMM_EXPORT ParallelPlan {
  Plan gemm;  ///< of the rank's own product
  Exchange exchange = Exchange::all_gather_a;
  bool overlapped = false;  ///< else the exchange and the product come one after the other
  bool one_shot = false;    ///< all_reduce_d by this library's own kernel in one step, else by NCCL
  std::string why;
  int rank = 0, ranks = 1;
  std::size_t received_bytes = 0;  ///< by each rank
  std::size_t staging_bytes = 0;   ///< of device memory that this product needs
  // Expected, in microseconds.
  double gemm_us = 0, exchange_us = 0;  ///< each alone
  double exposed_us = 0;                ///< of the exchange, what the product does not hide
  /// Of a call, median of the slowest rank's, where the ranks have measured together; 0: they have not.
  double measured_us = 0;

  std::string explain() const;  ///< all of the above for people, several lines
};

/// One matrix product computed by all ranks of an NCCL communicator (tensor parallelism). Every function that is
/// collective is called by all ranks, in the same order, as NCCL's are. Thread-safe otherwise. Every function may throw
/// Error.
///
/// alpha, beta, bias, activation and scale_d are applied once, to the sum. C, bias along M and D have the rows that the
/// rank gets. scale_a and scale_b are the rank's own; of a gathered A all ranks pass the same. Partial sums travel as
/// D's type, bf16 for a D of 8 bits. Where NCCL adds them, it does so in an order of its own. Overlapped, a rank adds
/// to its own those of the others in the order of ranks, so that every run gives the same bits; in one shot, each rank
/// adds all of them in the order of ranks, so that all ranks get the same bits, too.
///
/// One shot is for small results of all_reduce_d, where the ranks' devices reach each other: behind the product a
/// kernel sends a rank's sums to all others, and adds up what comes. It is chosen where that is expected to take less
/// time than NCCL does: with 2 ranks for up to some 9 MB of sums, with 8 for 0.4 MB.
///
/// Not served are batches, groups, gated pairs and other epilogue functions of the caller's own, vectors of scales and
/// scales of blocks, a D with scales of its own, and of several ranks' all_gather_a a column-major A. Leading
/// dimensions are free. Pointers are aligned as the Problem says, since all ranks choose by that, and
/// overlapped to 16 bytes.
///
/// Calls of one TensorParallel follow each other on the device, also on different streams. Of a captured graph that
/// holds true within the graph: its launches may overlap with neither each other nor other calls.
class JITGEMM_EXPORT TensorParallel {
 public:
  /// Collective. NCCL is the one that made the communicator: found in the process, else libnccl.so.2, 2.4 or newer.
  /// Both the Context, which may not be moved meanwhile, and the communicator outlive this. Error{communicator_failed}
  /// for a communicator that is null, has failed, or whose device is not the Context's; Error{no_device} without a
  /// usable NCCL.
  TensorParallel(Context& context, NcclCommunicator communicator, const TensorParallelOptions& options = {});
  /// Not collective. Waits for this rank's calls in flight, but not for those that were left behind; graphs with its
  /// calls are run no more. Other ranks' calls use what this rank frees, so all have ended by then: each rank
  /// synchronises its streams, then all meet, as in a barrier, and destroy theirs.
  ~TensorParallel();
  TensorParallel(TensorParallel&&) noexcept;
  TensorParallel& operator=(TensorParallel&&) noexcept;

  /// Collective. Enqueues the product on `stream` and returns. The first call with a new problem does what prepare()
  /// does; other scalars make no new one, but where they become or cease to be 0, or alpha 1. Legal in stream capture
  /// once prepared: Error{not_capturable} else. Ranks that give different problems get Error{invalid_problem} before
  /// anything is launched, when they prepare. After Error{peer_lost} and Error{communicator_failed} all calls throw
  /// that. A rank whose operands are refused is still at this call, for which the others wait: it makes the call again,
  /// or all begin anew. Were it to go on to its next call, the ranks would add up numbers of different calls.
  void gemm(const Problem& problem, Exchange exchange, const Operands& operands, Stream stream = nullptr);
  /// Collective. Chooses on rank 0, for all, compiles and allocates. What fails on one rank is an Error on all.
  /// Error{workspace_too_small} if it needs more than TensorParallelOptions::staging_bytes.
  ///
  /// Whether anything is measured is up to the Tuning of rank 0's Context alone. With Tuning::on, where communication
  /// could run under the product, all ranks time together what is worth it, on memory of their own, within
  /// ContextOptions::tuning_budget_seconds and what is left of the total: rank 0 chooses by the slowest rank's times,
  /// and keeps that in its tuning database for this problem, exchange and number of ranks. With Tuning::cached it
  /// chooses by what is kept there, which all TensorParallels whose rank 0 has that database share. Without, by the
  /// cost model, and so if a rank has no memory for it. Nothing is measured with ContextOptions::at_hand_within.
  void prepare(const Problem& problem, Exchange exchange);
  /// What gemm() would do. Not collective: of what is not prepared, what this rank would choose.
  ParallelPlan plan(const Problem& problem, Exchange exchange);

  /// Throws Error{peer_lost} or Error{communicator_failed} if a call was left behind: by a rank that did not answer
  /// within the time-out, or by an error of the communicator's own. Waits for nothing. gemm() and prepare() begin with
  /// it. Where NCCL waits, which has no time-out, a call's begins with the first check() that finds the device at it,
  /// and a later one tells: who waits for a result asks now and then.
  void check();
  /// Ends the waits of calls in flight, whose results count for nothing, and of all later ones:
  /// Error{communicator_failed}. What NCCL itself waits for on the device, ncclCommAbort() ends.
  void abort() noexcept;

  int rank() const;
  int ranks() const;

 private:
  struct Impl;
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace jitgemm
