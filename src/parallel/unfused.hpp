#pragma once

#include <optional>

#include "parallel/communicator.hpp"
#include "parallel/parallel_product.hpp"
#include "parallel/sum_epilogue.hpp"

namespace jitgemm {

/// NCCL's all-gather and then the product, or the product, NCCL's reduction and then the epilogue. Where nothing
/// communicates, the product alone.
class UnfusedProduct final : public ParallelProduct {
 public:
  /// Compiles and loads what a call launches. All outlive this.
  UnfusedProduct(Context& context, Communicator& communicator, const RankProblem& problem, const KernelConfig& config);

  static std::size_t staging_bytes(const RankProblem& problem);
  std::size_t staging_bytes() const override { return staging_bytes_; }
  bool ends_its_waits() const override { return false; }
  void enqueue(const RankProblem& problem, const Operands& operands, void* staging, Stream stream) override;

 private:
  void all_gather(const RankProblem& problem, const void* shard, char* gathered, Stream stream);
  void reduce(const RankProblem& problem, const Operands& operands, char* sums, Stream stream);

  Context& context_;
  Backend& backend_;
  Communicator& communicator_;
  const KernelConfig config_;
  const std::size_t staging_bytes_;
  std::optional<SumEpilogue> finish_;
};

/// Bytes that each rank receives, and how long NCCL is expected to take for them.
std::size_t received_bytes(const RankProblem& problem);
double expected_exchange_us(const RankProblem& problem);

}  // namespace jitgemm
