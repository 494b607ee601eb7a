#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "contexts.hpp"
#include "jitgemm/tensor_parallel.hpp"
#include "matmul.hpp"

namespace jitgemm::python {

/// What TensorParallel's methods that multiply are called in Python. Throws TypeError, ValueError.
Exchange exchange_named(nb::handle name);
const char* name_of(Exchange exchange);

/// A TensorParallel as Python holds it. All that may wait for other ranks gives Python's lock away.
class TensorParallelHandle {
 public:
  /// An address, or a process group of torch's; None: the context of the communicator's device.
  TensorParallelHandle(nb::handle communicator, nb::handle context, const TensorParallelOptions& options);
  ~TensorParallelHandle();
  TensorParallelHandle(const TensorParallelHandle&) = delete;
  TensorParallelHandle& operator=(const TensorParallelHandle&) = delete;

  /// Arguments are as matmul() has them, of this rank's arrays.
  nb::object multiply(const MatmulArguments& arguments, Exchange exchange);
  /// `a` may also be a Problem or its text, and then stands alone.
  void prepare(const MatmulArguments& arguments, Exchange exchange);
  ParallelPlan plan(const MatmulArguments& arguments, Exchange exchange);
  void check();
  void abort();
  /// What calls in other threads still use ends with them.
  void close();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool closed() const { return !parallel_; }

 private:
  /// Calls `function` without Python's lock.
  template <typename Function>
  auto unlocked(Function function);
  /// As past_torch() has them, and this one's context.
  MatmulArguments own_arguments(const MatmulArguments& arguments, nb::object& cast) const;
  Problem problem_of(const MatmulArguments& arguments, Exchange exchange) const;
  void wait(TensorParallel& parallel, Stream stream);

  nb::object communicator_, context_object_;
  ContextHandle* context_ = nullptr;
  std::shared_ptr<TensorParallel> parallel_;  // null once closed
  int rank_ = 0, ranks_ = 1;
};

}  // namespace jitgemm::python
