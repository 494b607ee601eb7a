#include "core/problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>

#include "core/activations.hpp"
#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/operand_matrix.hpp"
#include "core/pairing.hpp"
#include "core/problem_checks.hpp"
#include "core/problem_fields.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

constexpr Problem defaults;

void check_size(const char* name, std::int64_t size, const Problem& problem) {
  if (size >= 0 && size < (std::int64_t(1) << 31)) return;
  invalid(ErrorCode::invalid_problem,
          std::string(name) + " = " + std::to_string(size) + " is out of range: give 0 to 2^31 - 1", problem);
}

/// Where groups share A, C and D, or A and B, these have no strides.
void normalise_groups(NormalProblem& p, const Problem& problem) {
  if (!has_groups(p)) return;
  if (p.expected_m < 0) {
    invalid(ErrorCode::invalid_problem,
            "expected_m = " + std::to_string(p.expected_m) +
                " is negative: give the rows that a group is expected to have, or 0 if they have alike",
            problem);
  }
  p.expected_m = expected_rows(p);
  const auto share = [&](const char* name, const Matrix& given, Matrix& matrix) {
    if (given.stride != packed_stride && given.stride != 0) {
      invalid(ErrorCode::invalid_problem,
              "stride_" + std::string(name) + " = " + std::to_string(given.stride) + ", but groups " +
                  (p.grouping == Grouping::offsets ? "by offsets" : "along k") + " are parts of one matrix " + name +
                  ": leave it away, or give 0",
              problem);
    }
    matrix.stride = 0;
  };
  if (p.grouping == Grouping::counts) return;
  share("a", problem.a, p.a);
  if (p.grouping == Grouping::along_k) return share("b", problem.b, p.b);
  if (reads_c(problem)) share("c", problem.c, p.c);
  p.c.stride = 0;
  share("d", problem.d, p.d);
}

/// The matrices of D one after the other or, a row of each within a leading dimension, side by side. Refuses other ways
/// to interleave, too, though some have no element in two.
void check_batch_of_d(const Problem& p, const Problem& problem) {
  const OperandMatrix d = matrix_d(p);
  if (p.grouping == Grouping::offsets || d.batch <= 1 || d.empty()) return;
  if (d.stride >= d.span() || (d.stride >= d.extent && d.ld >= (d.batch - 1) * d.stride + d.extent)) return;
  const std::int64_t widest = (d.ld - d.extent) / (d.batch - 1);
  invalid(ErrorCode::invalid_problem,
          "stride_d = " + std::to_string(d.stride) + " makes the matrices of D overlap or interleave: give at least " +
              std::to_string(d.span()) + ", or leave it away" +
              (widest < d.extent ? ""
                                 : ", or " + std::to_string(d.extent) + " to " + std::to_string(widest) +
                                       " for rows side by side in ldd = " + std::to_string(d.ld)),
          problem);
}

}  // namespace

NormalProblem::NormalProblem() : NormalProblem(normalise({})) {}

NormalProblem normalise(const Problem& problem) {
  NormalProblem p(problem);
  check_size("m", p.m, problem);
  check_size("n", p.n, problem);
  check_size("k", p.k, problem);
  check_size("batch", p.batch, problem);
  if (const std::string broken = why_types_unsupported(p); !broken.empty())
    invalid(ErrorCode::invalid_problem, broken, problem);
  if (const std::string broken = why_epilogue_unsupported(p); !broken.empty())
    invalid(ErrorCode::invalid_problem, broken, problem);
  for_each_scalar([&](const ProblemField& field, auto member) {
    double& scalar = member(p);
    const double given = scalar;
    if (!field.may_be_nan && std::isnan(given))
      invalid(ErrorCode::invalid_problem, std::string(field.name) + " = nan is not a number: give one", problem);
    scalar = field.applies(p) ? as_scalar(field.name, given, problem) : member(defaults);
    if (field.signed_zero && scalar == 0) scalar = std::copysign(0, given);
  });
  if (!is_fp8(p.a.type)) p.accumulation = defaults.accumulation;
  if (has_block_scales(p)) p.accumulation = Accumulation::promoted;
  if (!reads_ab(p)) {
    p.a.scaling = p.b.scaling = Scaling::value;
    if (has_pointers_to_b(p)) p.b.batch_mode = BatchMode::strided, p.b.stride = packed_stride;  // nor is their table
  }
  if (is_empty(p)) p.d.scaling = Scaling::value;  // D has no block to scale
  p.c.type = type_of_c(p);
  normalise_groups(p, problem);
  normalise_matrix("a", "lda", matrix_a(p), p.a, problem);
  normalise_matrix("b", "ldb", matrix_b(p), p.b, problem);
  if (reads_c(p)) normalise_matrix("c", "ldc", matrix_c(p), p.c, problem);
  normalise_matrix("d", "ldd", matrix_d(p), p.d, problem);
  check_batch_of_d(p, problem);
  p.d.alignment = std::min(p.d.alignment, row_end_alignment(p));
  if (!reads_c(p)) p.c = {.type = p.c.type, .ld = matrix_c(p).packed_ld(), .stride = 0};
  return p;
}

NormalProblem shape_of(const NormalProblem& problem) {
  NormalProblem p = problem;
  for_each_scalar([&p](const ProblemField&, auto member) {
    const double any = member(defaults) != 0 ? member(defaults) : 1;
    member(p) = member(p) != 0 ? any : 0;
  });
  return p;
}

NormalProblem without_epilogue_function(const NormalProblem& problem) {
  NormalProblem p = problem;
  p.epilogue.function = 0;
  if (!has_pairs(problem)) return p;
  p.d.ld *= 2;  // packed stays packed
  p.d.stride *= 2;
  p.d.alignment = std::min(16, 2 * p.d.alignment);
  if (!reads_c(p)) p.c.ld = matrix_c(p).packed_ld();
  return p;
}

bool equal(const Problem& x, const Problem& y) {
  bool same = true;
  for_each_field([&](const ProblemField&, auto member) { same = same && same_value(member(x), member(y)); });
  return same;
}

/// Multilinear: the sum of each field times an odd number of its own, so that no field waits for the one before.
std::size_t hash_value(const Problem& p) {
  std::uint64_t hash = 0, factor = 0x9e3779b97f4a7c15u;
  const auto bits = []<typename T>(T value) {
    if constexpr (std::floating_point<T>)
      return value == 0 ? 0 : value != value ? 1 : std::bit_cast<std::uint64_t>(value);  // one of all zeros, all NaN
    else
      return std::uint64_t(value);
  };
  for_each_field([&](const ProblemField&, auto member) {
    hash += bits(member(p)) * factor;
    factor = factor * 0xd1342543de82ef95u | 1;
  });
  hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

double flops(const Problem& p) {
  const double products = p.grouping == Grouping::along_k ? 1 : double(matrices_of_rows(p));
  return 2.0 * double(p.m) * double(p.n) * double(p.k) * products;
}

double minimum_bytes(const Problem& p) {
  const auto bytes = [](const OperandMatrix& matrix) {
    const double one = double(matrix.extent) * double(matrix.vectors) * double(size_of(matrix.type));
    return matrix.batch > 1 && matrix.stride == 0 ? one : one * double(matrix.batch);
  };
  double total = bytes(matrix_d(p));
  OperandMatrix b = matrix_b(p);
  b.batch = expected_groups(p);
  if (reads_ab(p)) total += bytes(matrix_a(p)) + bytes(b);
  if (reads_ab(p) && (has_vector_scales(p) || has_block_scales(p)))
    total += double(scales_of_a(p) + scales_of_b(p)) * double(sizeof(float));
  if (has_own_scales_d(p)) total += double(scales_of_d(p)) * double(sizeof(float));
  if (reads_c(p)) total += bytes(matrix_c(p));
  if (has_epilogue_function(p) && !is_empty(p)) total += epilogue_bytes(p);
  if (!is_empty(p)) total += double(bias_elements(p)) * double(size_of(type_of_c(p)));
  return total;
}

double epilogue_bytes_per_sum(const Problem& p) {
  std::size_t bytes = size_of(p.d.type) * (reads_c(p) ? 2 : 1);
  if (has_epilogue_function(p))
    for (const EpilogueOperand& operand : epilogue_function(p).operands)
      if (operand.shape == OperandShape::matrix) bytes += size_of(operand.type);
  return double(bytes) / (has_pairs(p) ? 2 : 1);
}

double floor_us(const Problem& problem) {
  // What an H200 sustains, TFLOP/s or 1e12 multiplications and additions of integers.
  const double rate = problem.a.type == f64 || is_simt(problem.a.type) ? 55
                      : problem.a.type == tf32                         ? 400
                      : size_of(problem.a.type) == 1                   ? 1500
                                                                       : 800;
  const double compute_us = (reads_ab(problem) ? flops(problem) : 0.0) / (rate * 1e6);
  return std::max(compute_us, minimum_bytes(problem) / 4.2e6) + 2;
}

}  // namespace jitgemm
