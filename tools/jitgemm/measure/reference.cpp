#include "measure/reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/activations.hpp"
#include "core/element.hpp"
#include "core/groups.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"

namespace jitgemm::cli {
namespace {

constexpr std::int64_t chunk_bytes = std::int64_t{16} << 20;

double activated(double x, const Problem& problem) {
  return info_of(problem.epilogue.activation).value(x, problem.epilogue.slope);
}

/// As the multiplication reads it.
double factor(const void* memory, std::int64_t index, DataType type) {
  const double x = load_element(memory, index, type);
  if (type != tf32) return x;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(float(x)) & ~0x1fffu);
}

}  // namespace

Reference::Reference(Backend& backend, const NormalProblem& problem, const Operands& operands)
    : backend_(backend),
      problem_(problem),
      operands_(operands),
      scales_a_(scales(reads_ab(problem) ? operands.scale_a : nullptr, scales_of_a(problem))),
      scales_b_(scales(reads_ab(problem) ? operands.scale_b : nullptr, scales_of_b(problem))),
      scale_d_(scales(operands.scale_d, 1).front()) {
  if (has_pointers_to_b(problem)) {
    pointers_to_b_.resize(std::size_t(problem.batch));
    backend_.copy_to_host(pointers_to_b_.data(), operands.b, pointers_to_b_.size() * sizeof(void*));
  }
  if (problem.grouping != Grouping::along_k) return;
  std::vector<std::int32_t> ends(std::size_t(problem.batch), 0);
  backend_.copy_to_host(ends.data(), operands.group_rows, ends.size() * sizeof ends[0]);
  of_k_ = rows_of_groups(problem, ends);
}

std::vector<float> Reference::scales(const float* memory, std::int64_t count) {
  if (!memory) return {1};
  std::vector<float> scales(static_cast<std::size_t>(count));
  backend_.copy_to_host(scales.data(), memory, scales.size() * sizeof(float));
  return scales;
}

void Reference::fetch(std::int64_t batch, const std::vector<std::int64_t>& rows,
                      const std::vector<std::int64_t>& columns) {
  if (!reads_ab(problem_)) return;
  const auto its = [batch](const OperandMatrix& matrix, const void* operand) -> const void* {
    return static_cast<const char*>(operand) + batch * matrix.stride * std::int64_t(size_of(matrix.type));
  };
  const OperandMatrix a = matrix_a(problem_), b = matrix_b(problem_);
  fetch_vectors(a, its(a, operands_.a), problem_.a.layout == Layout::row_major, batch, rows, rows_);
  fetch_vectors(b, pointers_to_b_.empty() ? its(b, operands_.b) : pointers_to_b_[std::size_t(batch)],
                problem_.b.layout == Layout::column_major, batch, columns, columns_);
}

void Reference::fetch_vectors(const OperandMatrix& matrix, const void* of_batch, bool k_adjacent, std::int64_t batch,
                              const std::vector<std::int64_t>& indices, Vectors& vectors) {
  std::vector<std::int64_t> missing;
  std::copy_if(indices.begin(), indices.end(), std::back_inserter(missing),
               [&](std::int64_t index) { return !vectors.contains({batch, index}); });
  if (missing.empty()) return;
  const std::int64_t k = problem_.k, size = std::int64_t(size_of(matrix.type));
  const char* const memory = static_cast<const char*>(of_batch);
  for (std::int64_t index : missing) vectors[{batch, index}].resize(std::size_t(k));

  std::vector<char> chunk;
  if (k_adjacent) {
    chunk.resize(std::size_t(k * size));
    for (std::int64_t index : missing) {
      backend_.copy_to_host(chunk.data(), memory + index * matrix.ld * size, chunk.size());
      std::vector<double>& vector = vectors[{batch, index}];
      for (std::int64_t i = 0; i < k; ++i) vector[std::size_t(i)] = factor(chunk.data(), i, matrix.type);
    }
    return;
  }
  // Their elements are a leading dimension apart: copy everything between, some k at a time.
  const auto [first, last] = std::minmax_element(missing.begin(), missing.end());
  const std::int64_t width = *last - *first + 1, step = std::max<std::int64_t>(1, chunk_bytes / (matrix.ld * size));
  for (std::int64_t begin = 0; begin < k; begin += step) {
    const std::int64_t count = std::min(step, k - begin);
    chunk.resize(std::size_t(((count - 1) * matrix.ld + width) * size));
    backend_.copy_to_host(chunk.data(), memory + (begin * matrix.ld + *first) * size, chunk.size());
    for (std::int64_t index : missing) {
      std::vector<double>& vector = vectors[{batch, index}];
      for (std::int64_t i = 0; i < count; ++i)
        vector[std::size_t(begin + i)] = factor(chunk.data(), i * matrix.ld + index - *first, matrix.type);
    }
  }
}

double Reference::addend(const void* memory, std::int64_t index) {
  char bytes[8];
  const DataType type = type_of_c(problem_);
  const std::size_t size = size_of(type);
  backend_.copy_to_host(bytes, static_cast<const char*>(memory) + std::size_t(index) * size, size);
  return load_element(bytes, 0, type);
}

/// Sums and products wrap, so unsigned arithmetic is theirs.
ExpectedElement Reference::integer_at(const std::vector<double>& a, const std::vector<double>& b, double c,
                                      double bias) const {
  const auto wrapped = [](double x) { return std::uint32_t(std::int64_t(x)); };
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += wrapped(a[i] * b[i]);
  const std::uint32_t x = wrapped(problem_.alpha) * sum + wrapped(problem_.beta) * wrapped(c) + wrapped(bias);
  return {.value = activated(std::int32_t(x), problem_)};
}

ExpectedElement Reference::at(std::int64_t batch, std::int64_t row, std::int64_t column) {
  fetch(batch, {row}, {column});
  const std::vector<double> none;
  const bool multiplies = reads_ab(problem_);
  const std::vector<double>& all_a = multiplies ? rows_.at({batch, row}) : none;
  const std::vector<double>& all_b = multiplies ? columns_.at({batch, column}) : none;
  const auto of_group = [&](const std::vector<double>& all) {
    const RowRange& range = of_k_[std::size_t(batch)];
    return std::vector<double>(all.begin() + range.begin, all.begin() + range.end);
  };
  const bool is_cut = multiplies && !of_k_.empty();
  const std::vector<double>&a = is_cut ? of_group(all_a) : all_a, &b = is_cut ? of_group(all_b) : all_b;
  const double c =
      reads_c(problem_) ? addend(operands_.c, batch * problem_.c.stride + row * problem_.c.ld + column) : 0;
  const double bias = problem_.epilogue.bias == Bias::none
                          ? 0
                          : addend(operands_.bias, problem_.epilogue.bias == Bias::along_m ? row : column);
  if (compute_type_of(problem_) == s32) return integer_at(a, b, c, bias);

  const auto scale_of_block = [this](const std::vector<float>& scales, Scaling scaling, std::int64_t first,
                                     std::int64_t rows, std::int64_t i, std::int64_t depth) {
    const std::int64_t ld = scale_ld(scaling, rows, problem_.k), block = depth / 128;
    const std::int64_t at = scaling == Scaling::block_1x128 ? block * ld + i : i / 128 * ld + block;
    return double(scales[std::size_t(first + at)]);
  };
  const auto scale = [](const std::vector<float>& scales, Scaling scaling, std::int64_t i) {
    return double(scales[scaling == Scaling::vector ? std::size_t(i) : 0]);
  };
  const auto scale_at = [&](std::int64_t depth) {
    if (has_block_scales(problem_))
      return scale_of_block(scales_a_, problem_.a.scaling, batch * scale_stride_a(problem_), problem_.m, row, depth) *
             scale_of_block(scales_b_, problem_.b.scaling, batch * scale_stride_b(problem_), problem_.n, column, depth);
    // Groups have vectors of their own.
    const std::int64_t first_a = problem_.grouping == Grouping::counts ? batch * problem_.m : 0,
                       first_b = has_groups(problem_) ? batch * problem_.n : 0;
    return scale(scales_a_, problem_.a.scaling, first_a + row) * scale(scales_b_, problem_.b.scaling, first_b + column);
  };
  const bool of_blocks = has_block_scales(problem_);
  double sum = 0, absolute = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double product = a[i] * b[i] * (of_blocks ? scale_at(std::int64_t(i)) : 1);
    sum += product;
    absolute += std::abs(product);
  }
  const double alpha = problem_.alpha * (of_blocks ? 1 : scale_at(0));
  double value = multiplies ? alpha * sum : 0;
  const double from_c = reads_c(problem_) ? problem_.beta * c : 0;
  value += from_c + bias;

  const ElementTerms terms{.linear = value,
                           .addends = std::abs(from_c) + std::abs(bias),
                           .products = multiplies ? std::abs(alpha) * absolute : 0,
                           .scale = scale_d_};
  return expected_element(problem_, terms, scale_d_ * activated(value, problem_));
}

}  // namespace jitgemm::cli
