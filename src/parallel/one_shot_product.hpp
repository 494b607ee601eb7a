#pragma once

#include "parallel/one_shot.hpp"
#include "parallel/parallel_product.hpp"

namespace jitgemm {

/// The product, and then its sums over all ranks by OneShot.
class OneShotProduct final : public ParallelProduct {
 public:
  /// Compiles and loads what a call launches. All outlive this.
  OneShotProduct(Context& context, OneShot& one_shot, const RankProblem& problem, const KernelConfig& config);
  /// Collective, before any call.
  void stage() { one_shot_.stage(prepared_); }

  std::size_t staging_bytes() const override { return staging_bytes_; }
  bool ends_its_waits() const override { return true; }
  void enqueue(const RankProblem& problem, const Operands& operands, void* staging, Stream stream) override;

 private:
  Context& context_;
  OneShot& one_shot_;
  const KernelConfig config_;
  const std::size_t staging_bytes_;
  OneShot::Prepared prepared_;
};

}  // namespace jitgemm
