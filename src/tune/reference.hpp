#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"

namespace jitgemm {

/// Elements of D recomputed on the host in double precision, from operands in device memory.
class Reference {
 public:
  /// Operands as Scratch hands them out. Both outlive this.
  Reference(Backend& backend, const NormalProblem& problem, const Operands& operands);

  struct Element {
    double value = 0;
    double tolerance = 0;  ///< of a correctly computed element: rounding of D, accumulation in any order
    double products = 0;   ///< the sum of |alpha a b|

    bool accepts(double d) const;
  };

  /// Copies the rows of A and the columns of B that at() will need in one go.
  void fetch(std::int64_t batch, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns);
  Element at(std::int64_t batch, std::int64_t row, std::int64_t column);

  /// Largest relative error of rounding to the type of D, and of a sum of products to their absolute sum.
  double rounding() const;
  double accumulation() const;

 private:
  using Vectors = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<double>>;  // by batch and index
  void fetch_vectors(const OperandMatrix& matrix, const void* memory, bool k_adjacent, std::int64_t batch,
                     const std::vector<std::int64_t>& indices, Vectors& vectors);
  double addend(const void* memory, std::int64_t index);
  double scale(const float* memory);  ///< 1 without one
  Element integer_at(const std::vector<double>& a, const std::vector<double>& b, double c, double bias) const;

  Backend& backend_;
  NormalProblem problem_;
  Operands operands_;
  double scale_ab_ = 1, scale_d_ = 1;
  Vectors rows_, columns_;
};

}  // namespace jitgemm
