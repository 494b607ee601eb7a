#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "jitgemm/context.hpp"
#include "jitgemm/export.hpp"
#include "jitgemm/plan.hpp"
#include "jitgemm/problem.hpp"

struct ncclComm;

namespace jitgemm {

/// An ncclComm_t: the caller's, of one device a rank.
using NcclCommunicator = ::ncclComm*;

/// What travels between the ranks. `m`, `n` and `k` are those of the Problem that a rank is given; `ranks` divides the
/// m of the first two.
enum class Exchange : std::uint8_t {
  all_gather_a,      ///< a rank has m / ranks rows of A and its own n columns of B, and gets all m rows of these of D
  reduce_scatter_d,  ///< a rank has its own k columns of A and rows of B, and gets m / ranks rows of the sum over ranks
  all_reduce_d,      ///< the same, and gets all m rows
};
JITGEMM_EXPORT std::string_view to_string(Exchange exchange);

enum class Overlap : std::uint8_t {
  automatic,  ///< communication runs under the product where that is expected to be faster
  none,       ///< NCCL's collective before or after gemm()
};

struct TensorParallelOptions {
  Overlap overlap = Overlap::automatic;
  std::size_t staging_bytes = SIZE_MAX;  ///< of device memory at most, for what other ranks send
  double timeout_seconds = 60;           ///< until a rank that does not answer counts as lost; 0: never
};

/// How a product across ranks is computed, and what it moves.
struct JITGEMM_EXPORT ParallelPlan {
  Plan gemm;  ///< of the rank's own product
  Exchange exchange = Exchange::all_gather_a;
  bool overlapped = false;  ///< else NCCL's collective and the product, one after the other
  std::string why;
  int rank = 0, ranks = 1;
  std::size_t received_bytes = 0;  ///< by each rank
  std::size_t staging_bytes = 0;   ///< of device memory that this product needs
  // Expected, in microseconds.
  double gemm_us = 0, exchange_us = 0;  ///< each alone
  double exposed_us = 0;                ///< of the exchange, what the product does not hide

  std::string explain() const;  ///< all of the above for people, several lines
};

/// One matrix product computed by all ranks of an NCCL communicator (tensor parallelism). Every function that is
/// collective is called by all ranks, in the same order, as NCCL's are. Thread-safe otherwise. Every function may throw
/// Error.
///
/// alpha, beta, bias, activation and scale_d are applied once, to the sum. C, bias along M and D have the rows that the
/// rank gets. Partial sums travel as D's type and are added in the order of ranks, so every run gives the same bits.
class JITGEMM_EXPORT TensorParallel {
 public:
  /// Collective. NCCL is the one that made the communicator: found in the process, else libnccl.so.2. Both the Context
  /// and the communicator outlive this. Error{communicator_failed} for a communicator that has failed, or whose device
  /// is not the Context's; Error{no_device} without a usable NCCL.
  TensorParallel(Context& context, NcclCommunicator communicator, const TensorParallelOptions& options = {});
  ~TensorParallel();
  TensorParallel(TensorParallel&&) noexcept;
  TensorParallel& operator=(TensorParallel&&) noexcept;

  /// Collective. Enqueues the product on `stream` and returns. The first call with a new problem does what prepare()
  /// does. Legal in stream capture once prepared: Error{not_capturable} else. Ranks that give different problems get
  /// Error{invalid_problem} before anything is launched, when they prepare.
  void gemm(const Problem& problem, Exchange exchange, const Operands& operands, Stream stream = nullptr);
  /// Collective. Chooses on rank 0, for all, compiles and allocates.
  void prepare(const Problem& problem, Exchange exchange);
  /// What gemm() would do. Not collective: of what is not prepared, what this rank would choose.
  ParallelPlan plan(const Problem& problem, Exchange exchange);

  /// Throws Error{peer_lost} or Error{communicator_failed} if a call was left behind: by a rank that did not answer
  /// within the time-out, or by an error of the communicator's own. Waits for nothing.
  void check();
  /// Ends the waits of calls in flight, whose results count for nothing, and of all later ones.
  void abort() noexcept;

  int rank() const;
  int ranks() const;

 private:
  struct Impl;
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace jitgemm
