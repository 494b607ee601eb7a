#include "measure/check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "core/element.hpp"
#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/pairing.hpp"
#include "core/type_rules.hpp"
#include "measure/epilogue_check.hpp"
#include "measure/inputs.hpp"
#include "measure/reference.hpp"
#include "tune/group_rows.hpp"
#include "tune/tolerance.hpp"

namespace jitgemm::cli {
namespace {

/// `count` of [0, size), its ends among them, in order; all of it if count >= size.
std::vector<std::int64_t> sample(std::int64_t size, std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> indices;
  if (count >= size) {
    for (std::int64_t i = 0; i < size; ++i) indices.push_back(i);
    return indices;
  }
  indices = {0, size - 1};
  std::mt19937_64 random(seed);
  while (std::int64_t(indices.size()) < count) indices.push_back(std::int64_t(random() % std::uint64_t(size)));
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

/// Those that are computed, one matrix or group after the other; how many there are without them.
class Rows {
 public:
  Rows(Backend& backend, const Problem& p, const Operands& operands) : problem_(p), count_(p.batch * p.m) {
    if (!has_groups_of_rows(p) || p.batch == 0) return;
    std::vector<std::int32_t> table(std::size_t(p.batch), 0);
    backend.copy_to_host(table.data(), operands.group_rows, table.size() * sizeof table[0]);
    ranges_ = rows_of_groups(p, table);
    count_ = 0;
    for (const RowRange& range : ranges_) firsts_.push_back(std::exchange(count_, count_ + range.end - range.begin));
  }
  std::int64_t count() const { return count_; }
  RowOfD at(std::int64_t r) const {
    if (ranges_.empty()) return {r / problem_.m, r % problem_.m};
    const auto group = std::upper_bound(firsts_.begin(), firsts_.end(), r) - firsts_.begin() - 1;
    return {group, ranges_[std::size_t(group)].begin + r - firsts_[std::size_t(group)]};
  }

 private:
  const Problem& problem_;
  std::int64_t count_;
  std::vector<RowRange> ranges_;
  std::vector<std::int64_t> firsts_;  // the number of each group's first row
};

std::vector<double> row_of(Backend& backend, const Problem& p, const void* d, const RowOfD& at) {
  const std::size_t size = size_of(p.d.type), count = std::size_t(columns_of_d(p));
  const std::int64_t begin = at.batch * p.d.stride + at.row * p.d.ld;
  std::vector<std::byte> bytes(count * size);
  backend.copy_to_host(bytes.data(), static_cast<const std::byte*>(d) + std::size_t(begin) * size, bytes.size());
  std::vector<double> values(count);
  for (std::size_t j = 0; j < count; ++j) values[j] = load_element(bytes.data(), std::int64_t(j), p.d.type);
  return values;
}

/// Of the error to the tolerance, no NaN; above 1 is wrong.
double error_ratio(const ExpectedElement& reference, double got) {
  const double error = std::abs(got - reference.value);
  if (reference.accepts(got)) return error > 0 && std::isfinite(error) ? error / reference.tolerance : 0;
  const double ratio = error / reference.tolerance;
  return std::isnan(ratio) ? HUGE_VAL : std::max(ratio, std::nextafter(1.0, 2.0));
}

/// What two programs' sums may differ by, of a sum's size: they add in another order, and round inputs otherwise.
double relative_difference(const Problem& p) {
  if (accumulator_of(p) == s32) return compute_type_of(p) == s32 ? 0 : 0x1p-20;  // of the roundings behind it
  switch (p.a.type) {
    case f64:
      return 0x1p-44;
    case tf32:
      return 0x1p-9;  // some round inputs to it, others truncate
    // On sm_90 each 32 products are added, and the bits below the 13th of the sum truncated, or not if another program
    // splits K.
    case e4m3:
    case e5m2:
      return 0x1p-13 * (4 + double(p.k) / 32);
    default:
      return 0x1p-14;
  }
}

}  // namespace

std::string element_name(const Problem& p, const CheckedElement& element) {
  const std::string matrix = p.batch > 1 ? fmt::format("[{}]", element.batch) : "";
  return fmt::format("{}{}({}, {})", element.what, matrix, element.row, element.column);
}

void Check::compare(const CheckedElement& element, double value, const ExpectedElement& reference) {
  ++elements;
  const bool is_nan_in_both = std::isnan(value) && std::isnan(reference.value);
  nans += is_nan_in_both;
  const double its = error_ratio(reference, value);
  if (its <= ratio) return;
  worst = element;
  got = value;
  expected = reference.value;
  error = value == reference.value || is_nan_in_both ? 0 : std::abs(value - reference.value);  // inf - inf is NaN
  allowed = reference.tolerance;
  ratio = its;
}

void poison(Backend& backend, const Problem& p, const Operands& operands) {
  const auto overwrite = [&](void* memory, std::size_t bytes) {
    if (bytes > 0) backend.fill(memory, 0xff, bytes);
  };
  overwrite(operands.d, bytes_of_d(p));
  if (!has_epilogue_function(p)) return;
  const std::vector<EpilogueOperand>& own = epilogue_function(p).operands;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const EpilogueValue& value = operands.epilogue[i];
    if (own[i].output) overwrite(value.out, std::size_t(matrix_of(own[i], value, p).batch_bytes()));
  }
}

Check check_against_reference(Backend& backend, const Problem& p, const Operands& operands,
                              std::int64_t most_elements) {
  Check check;
  const Rows computed(backend, p, operands);
  const std::int64_t all_rows = computed.count();
  if (all_rows == 0) return check;
  const std::int64_t width = columns_of_d(p);
  check.whole = all_rows * width <= most_elements && double(all_rows * width) * double(p.k) <= 0x1p27;
  const auto side = std::int64_t(std::clamp(std::sqrt(0x1p24 / double(p.k + 1)), 4.0, 48.0));
  const std::vector<std::int64_t> rows = sample(all_rows, check.whole ? all_rows : side, 1);
  const std::vector<std::int64_t> columns = sample(width, check.whole ? width : side, 2);
  if (has_epilogue_function(p)) {
    std::vector<RowOfD> of_d;
    for (const std::int64_t i : rows) of_d.push_back(computed.at(i));
    if (!columns.empty()) check_epilogue(backend, p, operands, of_d, columns, check);
    return check;
  }
  Reference reference(backend, normalise(p), operands);
  for (std::int64_t i : rows) {
    const RowOfD at = computed.at(i);
    const std::vector<double> d = row_of(backend, p, operands.d, at);
    reference.fetch(at.batch, {at.row}, columns);
    for (std::int64_t j : columns) {
      check.compare({"D", at.batch, at.row, j}, d[std::size_t(j)], reference.at(at.batch, at.row, j));
    }
  }
  return check;
}

std::string compare_rows(Backend& backend, const Problem& p, const Operands& operands, const void* other,
                         std::int64_t rows) {
  const Rows computed(backend, p, operands);
  const double relative = 4 * unit_roundoff(p.d.type) + relative_difference(p);
  const double typical = std::abs(p.alpha) * std::sqrt(double(p.k)) + std::abs(p.beta) + 1;  // an element of D, roughly
  for (const std::int64_t i : sample(computed.count(), rows, 3)) {
    const RowOfD at = computed.at(i);
    const std::vector<double> x = row_of(backend, p, operands.d, at), y = row_of(backend, p, other, at);
    for (std::size_t j = 0; j < x.size(); ++j) {
      const double bound = relative * (std::abs(y[j]) + 3 * typical);
      if (x[j] == y[j] || std::abs(x[j] - y[j]) <= bound) continue;
      const CheckedElement where{"D", at.batch, at.row, std::int64_t(j)};
      return fmt::format("{} is {} here and {} there, more than {:.3g} apart", element_name(p, where), x[j], y[j],
                         bound);
    }
  }
  return {};
}

}  // namespace jitgemm::cli
