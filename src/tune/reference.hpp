#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/backend.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// The exact value of an element, rounded to double.
double to_double(const void* element, DataType type);

/// Elements of D recomputed on the host in double precision, from operands in device memory.
class Reference {
 public:
  /// Operands as Scratch hands them out. Both outlive this.
  Reference(Backend& backend, const Problem& problem, const Operands& operands);

  struct Element {
    double value = 0;
    double tolerance = 0;  ///< of a correctly computed element: rounding of D, accumulation in f32, in any order
    double products = 0;   ///< the sum of |alpha a b|

    bool accepts(double d) const;
  };

  /// Copies the rows of A and the columns of B that at() will need in one go.
  void fetch(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns);
  Element at(std::int64_t row, std::int64_t column);

  /// Largest relative error of rounding to the type of D, and of a sum of products to their absolute sum.
  double rounding() const;
  double accumulation() const;

 private:
  using Vectors = std::map<std::int64_t, std::vector<double>>;
  struct Matrix {
    const void* memory;
    bool adjacent;  // in k
    std::int64_t ld;
  };
  void fetch_vectors(const Matrix& matrix, const std::vector<std::int64_t>& indices, Vectors& vectors);
  double element(const void* memory, std::int64_t index);

  Backend& backend_;
  Problem problem_;
  Operands operands_;
  Vectors rows_, columns_;
};

}  // namespace jitgemm
