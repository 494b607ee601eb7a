#pragma once

#include <string>
#include <vector>

#include "tune/reference.hpp"

namespace jitgemm {

/// Judges the D that candidates compute from the same operands: rows of it (all, if D is small) are compared with what
/// the first accepted candidate computed, a sample of elements with the reference. The reference also says which of two
/// that differ is wrong.
class OutputCheck {
 public:
  OutputCheck(Backend& backend, const NormalProblem& problem, const Operands& operands);

  /// Fills the rows with NaN.
  void poison();

  struct Verdict {
    std::string why_wrong;             ///< empty: D is accepted
    bool accepted_were_wrong = false;  ///< so far; this D takes their place
  };
  Verdict judge();

 private:
  std::vector<double> read();
  std::string sampled_error(const std::vector<double>& rows);
  std::string error_at(std::int64_t row, std::int64_t column, double d);
  Reference::Element reference_at(std::int64_t row, std::int64_t column);
  std::size_t offset(std::int64_t row) const;  // of a row in D, bytes
  bool in_one_piece() const;

  Backend& backend_;
  NormalProblem problem_;
  Operands operands_;
  Reference reference_;
  std::int64_t all_rows_;                                     // of the whole batch; row r is row r % m of matrix r / m
  std::vector<std::int64_t> rows_;                            // that are compared
  std::vector<std::int64_t> sampled_rows_, sampled_columns_;  // of these the reference is computed; indices of rows_
  double products_ = 0;                                       // the largest sum of |alpha a b| of the sample
  std::vector<double> accepted_;
};

}  // namespace jitgemm
