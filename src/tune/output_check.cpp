#include "tune/output_check.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "core/element.hpp"
#include "util/number_text.hpp"

namespace jitgemm {
namespace {

constexpr std::int64_t whole_bytes = std::int64_t{4} << 20;  // D up to here is compared whole
constexpr int sample_rows = 8, sample_columns = 8;
constexpr int most_recomputed = 8;  // elements of a comparison; each may copy a whole operand

/// The first, the last, and some between, in order, without repetition.
std::vector<std::int64_t> sample(std::int64_t count, int size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> indices{0, count - 1};
  while (int(indices.size()) < size) indices.push_back(std::int64_t(random() % std::uint64_t(count)));
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

}  // namespace

OutputCheck::OutputCheck(Backend& backend, const NormalProblem& problem, const Operands& operands)
    : backend_(backend),
      problem_(problem),
      operands_(operands),
      reference_(backend, problem, operands),
      all_rows_(problem.batch * problem.m) {
  const std::vector<std::int64_t> rows = sample(all_rows_, sample_rows, 1);
  if (double(all_rows_) * double(problem.n) * double(size_of(problem.d.type)) <= double(whole_bytes)) {
    rows_.resize(std::size_t(all_rows_));
    std::iota(rows_.begin(), rows_.end(), 0);
    sampled_rows_ = rows;
  } else {
    rows_ = rows;
    sampled_rows_.resize(rows.size());
    std::iota(sampled_rows_.begin(), sampled_rows_.end(), 0);
  }
  sampled_columns_ = sample(problem.n, sample_columns, 2);
  for (std::int64_t row : rows) reference_.fetch(row / problem.m, {row % problem.m}, sampled_columns_);
  for (std::int64_t row : rows) {
    for (std::int64_t column : sampled_columns_) products_ = std::max(products_, reference_at(row, column).products);
  }
}

Reference::Element OutputCheck::reference_at(std::int64_t row, std::int64_t column) {
  return reference_.at(row / problem_.m, row % problem_.m, column);
}

std::size_t OutputCheck::offset(std::int64_t row) const {
  return std::size_t(row / problem_.m * problem_.d.stride + row % problem_.m * problem_.d.ld) *
         size_of(problem_.d.type);
}

bool OutputCheck::in_one_piece() const {
  return std::int64_t(rows_.size()) == all_rows_ && problem_.d.ld == problem_.n &&
         (problem_.batch == 1 || problem_.d.stride == problem_.m * problem_.n);
}

void OutputCheck::poison() {
  const bool whole = in_one_piece();
  const std::size_t bytes = std::size_t(problem_.n) * size_of(problem_.d.type) * (whole ? rows_.size() : 1);
  const std::vector<char> nan(bytes, char(0xff));
  for (std::size_t i = 0; i < (whole ? 1 : rows_.size()); ++i)
    backend_.copy_to_device(static_cast<char*>(operands_.d) + offset(rows_[i]), nan.data(), bytes);
}

std::vector<double> OutputCheck::read() {
  const std::size_t row_bytes = std::size_t(problem_.n) * size_of(problem_.d.type);
  const bool whole = in_one_piece();
  std::vector<char> bytes(row_bytes * rows_.size());
  for (std::size_t i = 0; i < (whole ? 1 : rows_.size()); ++i) {
    backend_.copy_to_host(bytes.data() + i * row_bytes, static_cast<const char*>(operands_.d) + offset(rows_[i]),
                          whole ? bytes.size() : row_bytes);
  }
  std::vector<double> rows(std::size_t(problem_.n) * rows_.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = load_element(bytes.data(), std::int64_t(i), problem_.d.type);
  return rows;
}

std::string OutputCheck::error_at(std::int64_t row, std::int64_t column, double d) {
  const Reference::Element expected = reference_at(row, column);
  if (expected.accepts(d)) return {};
  return "D[" + std::to_string(row) + ", " + std::to_string(column) + "] is " + general_text(d, 9) + ", not " +
         general_text(expected.value, 9) + " +- " + general_text(expected.tolerance, 2);
}

std::string OutputCheck::sampled_error(const std::vector<double>& rows) {
  for (std::int64_t i : sampled_rows_) {
    for (std::int64_t column : sampled_columns_) {
      const double d = rows[std::size_t(i * problem_.n + column)];
      if (std::string error = error_at(rows_[std::size_t(i)], column, d); !error.empty()) return error;
    }
  }
  return {};
}

OutputCheck::Verdict OutputCheck::judge() {
  std::vector<double> rows = read();
  if (std::string error = sampled_error(rows); !error.empty()) return {error};
  if (accepted_.empty()) {
    accepted_ = std::move(rows);
    return {};
  }
  // Two right results differ by rounding and by the order of accumulation. The bound is a guess where no element of the
  // sample is, so the reference has the last word.
  int recomputed = 0;
  for (std::size_t i = 0; i < rows.size() && recomputed < most_recomputed; ++i) {
    const double x = rows[i], y = accepted_[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double largest = std::max(std::abs(x), std::abs(y));
    const double bound =
        2 * (reference_.rounding() * largest + reference_.accumulation() * products_) + 0x1p-22 * largest;
    if (std::abs(x - y) <= bound) continue;
    ++recomputed;
    const std::int64_t row = rows_[i / std::size_t(problem_.n)], column = std::int64_t(i) % problem_.n;
    if (std::string error = error_at(row, column, x); !error.empty()) return {error};
    if (error_at(row, column, y).empty()) continue;
    accepted_ = std::move(rows);
    return {{}, true};
  }
  return {};
}

}  // namespace jitgemm
