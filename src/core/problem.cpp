#include "core/problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/activations.hpp"
#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/operand_matrix.hpp"
#include "core/pairing.hpp"
#include "core/problem_fields.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"
#include "util/fixed_list.hpp"
#include "util/number_text.hpp"

namespace jitgemm {
namespace {

constexpr Problem defaults;

// More than any device addresses. A kernel's 64-bit sums do not wrap, though a thread looks up to a tile beyond the
// last row of a matrix, which is less than 2^12 leading dimensions, before it sees that nothing is there.
constexpr std::int64_t most_matrix_bytes = std::int64_t(1) << 50, most_batch_bytes = std::int64_t(1) << 62;

/// The largest power of two that divides x, at most 16; 16 for 0.
int alignment_of(std::uint64_t x) { return int((x | 16) & -(x | 16)); }

[[noreturn]] void invalid(ErrorCode code, const std::string& message, const Problem& problem) {
  throw Error(code, message).with_problem(to_string(problem));
}

void check_size(const char* name, std::int64_t size, const Problem& problem) {
  if (size >= 0 && size < (std::int64_t(1) << 31)) return;
  invalid(ErrorCode::invalid_problem,
          std::string(name) + " = " + std::to_string(size) + " is out of range: give 0 to 2^31 - 1", problem);
}

/// Fills in and checks an operand's leading dimension, which errors call `ld_name`, its batch stride and alignment.
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
  if (p.grouping == Grouping::offsets) p.a.stride = p.c.stride = p.d.stride = 0;
  if (p.grouping == Grouping::along_k) p.a.stride = p.b.stride = 0;
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

/// As the kernel gets it; -0 and 0, and all NaN, become one value.
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

/// Half-open.
struct AddressRange {
  std::uintptr_t begin, end;
  bool overlaps(const AddressRange& other) const { return begin < other.end && other.begin < end; }
};

struct Operand {
  const char* name;
  const void* pointer;
  std::int64_t bytes;

  AddressRange range() const {
    const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
    return {begin, begin + std::uintptr_t(bytes)};
  }
};

void check_pointer(const Operand& operand, std::size_t alignment, const Problem& problem) {
  if (operand.pointer == nullptr) {
    invalid(ErrorCode::invalid_operand, std::string(operand.name) + " is null but the problem uses it: pass its memory",
            problem);
  }
  if (operand.range().begin % alignment != 0) {
    invalid(
        ErrorCode::invalid_operand,
        std::string(operand.name) + " is not a multiple of " + std::to_string(alignment) + " bytes: align the pointer",
        problem);
  }
}

void check_apart(const Operand& written, const Operand& other, const Problem& problem) {
  if (!written.range().overlaps(other.range())) return;
  invalid(ErrorCode::invalid_operand,
          std::string(written.name) + " overlaps " + other.name + " in memory: give " + written.name +
              " memory of its own" +
              (std::string(written.name) + other.name == "DC" ? ", or C's pointer, type and strides" : ""),
          problem);
}

/// What the caller's epilogue function reads and writes in this call.
class EpilogueValues {
 public:
  /// Checks sizes. What is refused is named as the operand is.
  EpilogueValues(const Problem& p, const Operands& operands) {
    if (!has_epilogue_function(p)) {
      if (operands.epilogue_count != 0)
        invalid(ErrorCode::invalid_operand,
                "values are given for an epilogue that the problem does not have: set Epilogue::function, or pass none",
                p);
      return;
    }
    const std::vector<EpilogueOperand>& described = epilogue_function(p).operands;
    if (operands.epilogue_count != described.size())
      invalid(ErrorCode::invalid_operand,
              "the epilogue has " + std::to_string(described.size()) + " operands and " +
                  std::to_string(operands.epilogue_count) + " values: give one each, in their order",
              p);
    if (operands.epilogue == nullptr && !described.empty())
      invalid(ErrorCode::invalid_operand,
              "Operands::epilogue is null: give the values of the epilogue's operands, in their order", p);
    for (std::size_t i = 0; i < described.size(); ++i) add(described[i], operands.epilogue[i], p);
  }

  /// `check_input` is that of any input, which includes check_apart_from_outputs(). An input may be D itself: each
  /// element is read by the warps that write it, before they do.
  template <typename CheckInput>
  void check(const Operand& d, const Operand& workspace, const Problem& p, const CheckInput& check_input) const {
    for (const One& one : all_) {
      if (one.operand->output) {
        check_pointer(one.memory, size_of(one.operand->type), p);
        check_apart(one.memory, d, p);
        if (workspace.pointer != nullptr) check_apart(one.memory, workspace, p);
        for (const One& other : all_)
          if (&other != &one && other.operand->output) check_apart(one.memory, other.memory, p);
      } else if (!(one.memory.pointer == d.pointer && one.like_d)) {
        check_input(one.memory, one.operand->type);
      }
    }
  }
  void check_apart_from_outputs(const Operand& input, const Problem& p) const {
    for (const One& one : all_)
      if (one.operand->output) check_apart(one.memory, input, p);
  }

 private:
  struct One {
    const EpilogueOperand* operand;
    Operand memory;
    bool like_d;  // where D's pointer would make it D
  };

  void add(const EpilogueOperand& operand, const EpilogueValue& value, const Problem& p) {
    if (operand.shape == OperandShape::scalar) {
      as_scalar(operand.name, value.scalar, p);
      return;
    }
    const bool is_of_one_matrix = p.grouping == Grouping::offsets && operand.shape != OperandShape::along_n;
    if (is_of_one_matrix && value.stride != 0 && value.stride != packed_stride)
      invalid(ErrorCode::invalid_operand,
              "stride_" + operand.name + " = " + std::to_string(value.stride) +
                  " leads from matrix to matrix, and groups by offsets are rows of one: leave it away",
              p);
    const OperandMatrix lies = matrix_of(operand, value, p);
    Matrix matrix{.type = operand.type,
                  .ld = operand.shape == OperandShape::matrix ? value.ld : 0,
                  .stride = lies.stride,
                  .alignment = int(size_of(operand.type))};
    normalise_matrix(operand.name, "ld_" + operand.name, lies, matrix, p);
    if (operand.output && lies.batch > 1 && lies.stride < lies.span())
      invalid(ErrorCode::invalid_operand,
              "stride_" + operand.name + " = " + std::to_string(lies.stride) +
                  " makes the matrices of an output overlap: give at least " + std::to_string(lies.span()) +
                  ", or leave it away",
              p);
    const bool like_d = operand.shape == OperandShape::matrix && operand.type == p.d.type && matrix.ld == p.d.ld &&
                        matrix.stride == p.d.stride;
    all_.add({&operand, {operand.name.c_str(), operand.output ? value.out : value.in, lies.batch_bytes()}, like_d});
  }

  FixedList<One, most_epilogue_operands> all_;
};

/// TMA clips what it stores to 16 bytes, not to elements: a row of D has to end at such a boundary, too.
int row_end_alignment(const Problem& p) { return alignment_of(std::uint64_t(columns_of_d(p)) * size_of(p.d.type)); }

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

namespace {

/// Those that D gets: written, so apart from all else.
void check_own_scales(const Problem& p, const Operands& operands, const Operand& d, const Operand& workspace) {
  if (!has_own_scales_d(p)) {
    if (operands.scales_d != nullptr)
      invalid(ErrorCode::invalid_operand,
              "scales_d is given for a D without scales of its own: set its scaling, or pass none", p);
    return;
  }
  if (operands.scale_d != nullptr)
    invalid(ErrorCode::invalid_operand, "scale_d is given for a D that gets scales of its own: pass scales_d alone", p);
  const Operand scales{"scales_d", operands.scales_d, scales_of_d(p) * std::int64_t(sizeof(float))};
  check_pointer(scales, sizeof(float), p);
  check_apart(scales, d, p);
  if (workspace.pointer != nullptr) check_apart(scales, workspace, p);
  const auto check_input = [&](const char* name, const void* pointer, std::int64_t bytes) {
    if (pointer != nullptr) check_apart(scales, {name, pointer, bytes}, p);
  };
  const auto floats = [](std::int64_t count) { return count * std::int64_t(sizeof(float)); };
  if (reads_ab(p)) {
    check_input("A", operands.a, matrix_a(p).batch_bytes());
    check_input("B", operands.b, matrix_b(p).batch_bytes());
    check_input("scale_a", operands.scale_a, floats(scales_of_a(p)));
    check_input("scale_b", operands.scale_b, floats(scales_of_b(p)));
  }
  if (reads_c(p)) check_input("C", operands.c, matrix_c(p).batch_bytes());
  if (p.epilogue.bias != Bias::none)
    check_input("bias", operands.bias, bias_elements(p) * std::int64_t(size_of(p.c.type)));
}

}  // namespace

NormalProblem with_operands(const NormalProblem& problem, const Operands& operands) {
  NormalProblem p = problem;
  if (is_empty(p)) return p;
  const auto set_alignment = [](Matrix& matrix, const Operand& operand) {
    matrix.alignment =
        alignment_of(operand.range().begin | std::uint64_t(matrix.ld | matrix.stride) * size_of(matrix.type));
  };

  const Operand d{"D", operands.d, matrix_d(p).batch_bytes()};
  // TMA alone stores a D with scales of its own, so no other kernel takes one that is aligned to less.
  check_pointer(d, has_own_scales_d(p) ? 16 : size_of(p.d.type), p);
  set_alignment(p.d, d);
  p.d.alignment = std::min(p.d.alignment, row_end_alignment(p));

  const EpilogueValues values(p, operands);
  const Operand workspace{"workspace", operands.workspace, std::int64_t(operands.workspace_bytes)};
  if (workspace.pointer != nullptr) {
    check_pointer(workspace, 256, p);
    check_apart(workspace, d, p);
  }
  const auto check_aligned = [&](const Operand& input, std::size_t alignment) {
    check_pointer(input, alignment, p);
    check_apart(d, input, p);
    if (workspace.pointer != nullptr) check_apart(workspace, input, p);
    values.check_apart_from_outputs(input, p);
  };
  const auto check_input = [&](const Operand& input, DataType type) { check_aligned(input, size_of(type)); };

  if (reads_ab(p)) {
    const Operand a{"A", operands.a, matrix_a(p).batch_bytes()};
    check_input(a, p.a.type);
    set_alignment(p.a, a);
    if (has_pointers_to_b(p)) {
      check_aligned({"B, pointers to it,", operands.b, p.batch * std::int64_t(sizeof(void*))}, sizeof(void*));
    } else {
      const Operand b{"B", operands.b, matrix_b(p).batch_bytes()};
      check_input(b, p.b.type);
      set_alignment(p.b, b);
    }
  }
  if (reads_c(p)) {
    const Operand c{"C", operands.c, matrix_c(p).batch_bytes()};
    const bool is_d = c.pointer == d.pointer && p.c.type == p.d.type && p.c.ld == p.d.ld && p.c.stride == p.d.stride;
    if (!is_d) check_input(c, p.c.type);
    set_alignment(p.c, c);
  }
  if (p.epilogue.bias != Bias::none)
    check_input({"bias", operands.bias, bias_elements(p) * std::int64_t(size_of(p.c.type))}, p.c.type);

  if (has_groups(p))
    check_input({"group_rows", operands.group_rows, p.batch * std::int64_t(sizeof(std::int32_t))}, s32);
  else if (operands.group_rows != nullptr)
    invalid(ErrorCode::invalid_operand,
            "group_rows is given for a problem without groups: set its grouping, or pass none", p);

  values.check(d, workspace, p, check_input);

  const auto check_scales = [&](const char* name, const float* scales, std::int64_t elements, bool applies,
                                Scaling scaling = Scaling::value) {
    if (scales == nullptr && scaling == Scaling::value) return;
    if (!applies) {
      invalid(ErrorCode::invalid_operand,
              std::string(name) +
                  " is given for an operand that is neither e4m3 nor e5m2, nor s8 with a floating-point D: pass none, "
                  "and use alpha",
              p);
    }
    // TMA copies rows of them as they are.
    check_aligned({name, scales, elements * std::int64_t(sizeof(float))},
                  scaling == Scaling::block_1x128 ? 16 : sizeof(float));
  };
  check_scales("scale_a", operands.scale_a, scales_of_a(p), takes_scales(p), p.a.scaling);
  check_scales("scale_b", operands.scale_b, scales_of_b(p), takes_scales(p), p.b.scaling);
  check_scales("scale_d", operands.scale_d, 1, is_fp8(p.d.type));
  check_own_scales(p, operands, d, workspace);
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
