#pragma once

#include "core/rank_problem.hpp"

namespace jitgemm {

/// How one problem and exchange are computed, made ready for calls. Unfused, by NCCL's collectives before or after the
/// product (unfused.hpp).
class ParallelProduct {
 public:
  virtual ~ParallelProduct() = default;

  /// Of device memory that a call is given, 256-byte aligned, any contents.
  virtual std::size_t staging_bytes() const = 0;

  /// Whether what waits for other ranks on the device ends that by itself, after the time-out.
  virtual bool ends_its_waits() const = 0;

  /// Everything of one call, on the stream. `problem` has the shape that this was made for.
  virtual void enqueue(const RankProblem& problem, const Operands& operands, void* staging, Stream stream) = 0;
};

}  // namespace jitgemm
