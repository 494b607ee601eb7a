#pragma once

#include <memory>
#include <vector>

#include "backend/backend.hpp"
#include "jitgemm/epilogue.hpp"

namespace jitgemm::cli {

/// An epilogue's function of the caller's own as the host computes it: its text alone, compiled by the emulator's
/// compiler, and called with values. So it shares no load, store or mask with the kernels.
class EpilogueEvaluator {
 public:
  EpilogueEvaluator(const EpilogueFunction& function, DataType compute);

  struct Point {
    double x = 0, up = 0;        ///< the sum, or the gate's and the other's
    std::vector<double> inputs;  ///< in the order of the function's operands that are read
    std::int64_t row = 0, column = 0, batch = 0;
    /// Relative errors of what a function that machines approximate gives: of the text's first call, third, ...; of its
    /// second, fourth, ...
    double function_error[2] = {};
  };
  /// For each point what the function gives, and then its outputs in their order.
  std::vector<std::vector<double>> operator()(const std::vector<Point>& points);

 private:
  std::unique_ptr<Backend> host_;
  std::unique_ptr<LoadedKernel> kernel_;
  std::size_t inputs_ = 0, outputs_ = 0;
};

}  // namespace jitgemm::cli
