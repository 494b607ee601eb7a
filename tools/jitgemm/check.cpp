#include "check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "measure.hpp"
#include "tune/reference.hpp"

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

std::vector<double> row_of(Backend& backend, const Problem& p, const void* d, std::int64_t row) {
  const std::size_t size = size_of(p.d), count = std::size_t(p.n);
  std::vector<std::byte> bytes(count * size);
  backend.copy_to_host(bytes.data(), static_cast<const std::byte*>(d) + std::size_t(row * p.ldd) * size, bytes.size());
  std::vector<double> values(count);
  for (std::size_t j = 0; j < count; ++j) values[j] = to_double(&bytes[j * size], p.d);
  return values;
}

/// Of the error to the tolerance; above 1 is wrong.
double error_ratio(const Reference::Element& reference, double got) {
  const double error = std::abs(got - reference.value);
  if (reference.accepts(got)) return std::isfinite(error) ? error / reference.tolerance : 0;
  return std::isnan(error) ? HUGE_VAL : std::max(error / reference.tolerance, std::nextafter(1.0, 2.0));
}

}  // namespace

void poison(Backend& backend, const Problem& p, const Operands& operands) {
  const std::vector<std::byte> nan(bytes_of_d(p), std::byte{0xff});
  if (!nan.empty()) backend.copy_to_device(operands.d, nan.data(), nan.size());
}

Check check_against_reference(Backend& backend, const Problem& p, const Operands& operands,
                              std::int64_t most_elements) {
  Check check;
  check.whole = p.m * p.n <= most_elements && double(p.m * p.n) * double(p.k) <= 0x1p27;
  const auto side = std::int64_t(std::clamp(std::sqrt(0x1p24 / double(p.k + 1)), 4.0, 48.0));
  const std::vector<std::int64_t> rows = sample(p.m, check.whole ? p.m : side, 1);
  const std::vector<std::int64_t> columns = sample(p.n, check.whole ? p.n : side, 2);
  Reference reference(backend, p, operands);
  reference.fetch(rows, columns);
  check.ratio = -1;
  for (std::int64_t i : rows) {
    const std::vector<double> d = row_of(backend, p, operands.d, i);
    for (std::int64_t j : columns) {
      const Reference::Element element = reference.at(i, j);
      const double got = d[std::size_t(j)], ratio = error_ratio(element, got);
      ++check.elements;
      if (ratio <= check.ratio) continue;
      check.row = i;
      check.column = j;
      check.got = got;
      check.expected = element.value;
      check.error = std::abs(got - element.value);
      check.allowed = element.tolerance;
      check.ratio = ratio;
    }
  }
  check.ratio = std::max(check.ratio, 0.0);
  return check;
}

std::string compare_rows(Backend& backend, const Problem& p, const void* d, const void* other) {
  const double rounding = p.d == f16 ? 0x1p-9 : p.d == bf16 ? 0x1p-6 : 0x1p-14;
  const double typical = std::sqrt(double(p.k));  // an element of D
  for (std::int64_t i : sample(p.m, 6, 3)) {
    const std::vector<double> x = row_of(backend, p, d, i), y = row_of(backend, p, other, i);
    for (std::size_t j = 0; j < x.size(); ++j) {
      const double bound = rounding * (std::abs(y[j]) + 3 * typical);
      if (std::abs(x[j] - y[j]) <= bound) continue;
      return fmt::format("D({}, {}) is {} here and {} there, more than {:.3g} apart", i, j, x[j], y[j], bound);
    }
  }
  return {};
}

}  // namespace jitgemm::cli
