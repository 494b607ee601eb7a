#pragma once

#include <memory>
#include <span>

#include "backend/backend.hpp"
#include "core/problem.hpp"
#include "jit/kernel_store.hpp"

namespace jitgemm {

/// The kernel that adds up what ranks have of a product, in their order, and applies the epilogue to the sum.
class SumEpilogue {
 public:
  /// Compiles and loads it. Of `problem` the types and the epilogue count, and rows and columns as they lie.
  /// `ld_sources`: elements from one row of a source to the next, whose first is aligned as D's type with pairs.
  SumEpilogue(Backend& backend, KernelStore& store, const NormalProblem& problem, std::int64_t ld_sources);

  /// D = epilogue(sum of the sources), asynchronous on the stream. Up to device::MOST_SOURCES, each of the problem's
  /// type of C and with the rows of D; the first may be D itself.
  void enqueue(const NormalProblem& problem, const Operands& operands, std::span<const void* const> sources,
               std::int64_t ld_sources, Stream stream) const;

 private:
  Backend& backend_;
  std::shared_ptr<const Kernel> kernel_;
};

}  // namespace jitgemm
