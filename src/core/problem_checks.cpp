#include "core/problem_checks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "util/number_text.hpp"

namespace jitgemm {
namespace {

// More than any device addresses. A kernel's 64-bit sums do not wrap, though a thread looks up to a tile beyond the
// last row of a matrix, which is less than 2^12 leading dimensions, before it sees that nothing is there.
constexpr std::int64_t most_matrix_bytes = std::int64_t(1) << 50, most_batch_bytes = std::int64_t(1) << 62;

}  // namespace

void invalid(ErrorCode code, const std::string& message, const Problem& problem) {
  throw Error(code, message).with_problem(to_string(problem));
}

void normalise_matrix(const std::string& name, const std::string& ld_name, const OperandMatrix& operand, Matrix& matrix,
                      const Problem& problem) {
  const std::int64_t size = std::int64_t(size_of(operand.type));
  const Matrix given = matrix;
  auto& [type, layout, ld, stride, alignment, scaling, batch_mode] = matrix;
  if (ld == 0) ld = operand.packed_ld();
  if (ld < operand.packed_ld()) {
    invalid(ErrorCode::invalid_problem,
            ld_name + " = " + std::to_string(ld) + " is less than one row (column) of " +
                std::to_string(operand.packed_ld()) + " elements: give at least that, or 0 for packed",
            problem);
  }
  const auto too_large = [&](const std::string& what, std::int64_t value, bool packed, const std::string& limit) {
    invalid(ErrorCode::invalid_problem,
            what + " = " + std::to_string(value) + (packed ? ", packed," : "") + " makes " + limit + " bytes: lower " +
                (packed ? "the problem's sizes" : "it"),
            problem);
  };
  std::int64_t elements, bytes;
  if (__builtin_mul_overflow(ld, std::max<std::int64_t>(1, operand.vectors), &elements) ||
      __builtin_mul_overflow(elements, size, &bytes) || bytes > most_matrix_bytes)
    too_large(ld_name, ld, given.ld == 0, "the matrix larger than 2^50");
  if (batch_mode == BatchMode::pointers) stride = packed_stride;  // as what is measured in their place lies
  if (operand.batch <= 1) stride = 0;
  if (stride == packed_stride) stride = elements;
  if (stride < 0) {
    invalid(ErrorCode::invalid_problem,
            "stride_" + name + " = " + std::to_string(stride) +
                " is negative: give elements, or leave it away where they are packed",
            problem);
  }
  if (__builtin_mul_overflow(stride, operand.batch, &bytes) || __builtin_add_overflow(bytes, elements, &bytes) ||
      __builtin_mul_overflow(bytes, size, &bytes) || bytes > most_batch_bytes)
    too_large("stride_" + name, stride, given.stride == packed_stride, "the batch larger than 2^62");
  if (alignment < size || alignment > 16 || !std::has_single_bit(unsigned(alignment))) {
    invalid(ErrorCode::invalid_problem,
            "align_" + name + " = " + std::to_string(alignment) + " is not a power of two from " +
                std::to_string(size) + " to 16: give the bytes that the pointer is a multiple of",
            problem);
  }
  alignment = std::min(alignment, alignment_of(std::uint64_t(ld | stride) * std::uint64_t(size)));
}

double as_scalar(std::string_view name, double x, const Problem& problem) {
  const DataType type = compute_type_of(problem);
  if (type == s32) {
    if (std::abs(x) < 0x1p31 && x == std::nearbyint(x)) return x + 0.0;
    invalid(ErrorCode::invalid_problem,
            std::string(name) + " = " + general_text(x, 6) + " multiplies integers: give a whole number below 2^31",
            problem);
  }
  if (std::isnan(x)) return std::numeric_limits<double>::quiet_NaN();
  return (type == f64 ? x : double(float(x))) + 0.0;
}

}  // namespace jitgemm
