#pragma once

#include "parallel/overlapped.hpp"
#include "parallel/parallel_product.hpp"

namespace jitgemm {

/// What Overlapped has prepared. Its memory is that class's own.
class OverlappedProduct final : public ParallelProduct {
 public:
  OverlappedProduct(Overlapped& overlapped, Overlapped::Prepared prepared)
      : overlapped_(overlapped), prepared_(std::move(prepared)) {}

  /// Collective. Gives it memory; what may fail on one rank alone has been done.
  void stage() { overlapped_.stage(prepared_); }
  std::size_t staging_bytes() const override { return 0; }
  bool ends_its_waits() const override { return true; }
  void enqueue(const RankProblem& problem, const Operands& operands, void*, Stream stream) override {
    overlapped_.gemm(prepared_, problem.asked, operands, stream);
  }

 private:
  Overlapped& overlapped_;
  Overlapped::Prepared prepared_;
};

}  // namespace jitgemm
