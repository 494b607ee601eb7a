#include "tune/output_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

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

OutputCheck::OutputCheck(Backend& backend, const Problem& problem, const Operands& operands)
    : backend_(backend), problem_(problem), operands_(operands), reference_(backend, problem, operands) {
  const std::vector<std::int64_t> rows = sample(problem.m, sample_rows, 1);
  if (problem.m * problem.n * std::int64_t(size_of(problem.d)) <= whole_bytes) {
    rows_.resize(std::size_t(problem.m));
    std::iota(rows_.begin(), rows_.end(), 0);
    sampled_rows_ = rows;
  } else {
    rows_ = rows;
    sampled_rows_.resize(rows.size());
    std::iota(sampled_rows_.begin(), sampled_rows_.end(), 0);
  }
  sampled_columns_ = sample(problem.n, sample_columns, 2);
  reference_.fetch(rows, sampled_columns_);
  for (std::int64_t row : rows) {
    for (std::int64_t column : sampled_columns_) products_ = std::max(products_, reference_.at(row, column).products);
  }
}

void OutputCheck::poison() {
  const std::size_t size = size_of(problem_.d);
  const bool whole = std::int64_t(rows_.size()) == problem_.m && problem_.ldd == problem_.n;
  const std::size_t bytes = std::size_t(problem_.n) * size * (whole ? rows_.size() : 1);
  const std::vector<char> nan(bytes, char(0xff));
  for (std::size_t i = 0; i < (whole ? 1 : rows_.size()); ++i) {
    backend_.copy_to_device(static_cast<char*>(operands_.d) + std::size_t(rows_[i] * problem_.ldd) * size, nan.data(),
                            bytes);
  }
}

std::vector<double> OutputCheck::read() {
  const std::size_t size = size_of(problem_.d), n = std::size_t(problem_.n);
  const bool whole = std::int64_t(rows_.size()) == problem_.m && problem_.ldd == problem_.n;
  std::vector<char> bytes(n * size * rows_.size());
  for (std::size_t i = 0; i < (whole ? 1 : rows_.size()); ++i) {
    backend_.copy_to_host(bytes.data() + i * n * size,
                          static_cast<const char*>(operands_.d) + std::size_t(rows_[i] * problem_.ldd) * size,
                          whole ? bytes.size() : n * size);
  }
  std::vector<double> rows(n * rows_.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = to_double(&bytes[i * size], problem_.d);
  return rows;
}

std::string OutputCheck::error_at(std::int64_t row, std::int64_t column, double d) {
  const Reference::Element expected = reference_.at(row, column);
  if (expected.accepts(d)) return {};
  char text[128];
  std::snprintf(text, sizeof text, "D[%lld, %lld] is %.9g, not %.9g +- %.2g", static_cast<long long>(row),
                static_cast<long long>(column), d, expected.value, expected.tolerance);
  return text;
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
