#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "tune/group_rows.hpp"
#include "tune/tolerance.hpp"

namespace jitgemm::cli {

/// Elements of D recomputed on the host in double precision, from operands in device memory: an oracle that shares no
/// text with the kernels.
class Reference {
 public:
  /// The backend outlives this.
  Reference(Backend& backend, const NormalProblem& problem, const Operands& operands);

  /// Copies the rows of A and the columns of B that at() will need in one go.
  void fetch(std::int64_t batch, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns);
  ExpectedElement at(std::int64_t batch, std::int64_t row, std::int64_t column);

 private:
  using Vectors = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<double>>;  // by batch and index
  void fetch_vectors(const OperandMatrix& matrix, const void* memory, bool k_adjacent, std::int64_t batch,
                     const std::vector<std::int64_t>& indices, Vectors& vectors);
  double addend(const void* memory, std::int64_t index);
  /// 1 without any.
  std::vector<float> scales(const float* memory, std::int64_t count);
  ExpectedElement integer_at(const std::vector<double>& a, const std::vector<double>& b, double c, double bias) const;

  Backend& backend_;
  NormalProblem problem_;
  Operands operands_;
  std::vector<RowRange> of_k_;              ///< of groups along k: what each has
  std::vector<const void*> pointers_to_b_;  ///< each group's, or none
  std::vector<float> scales_a_, scales_b_;  ///< as many as there are, at least one
  double scale_d_ = 1;
  Vectors rows_, columns_;
};

}  // namespace jitgemm::cli
