#include "core/operands.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/occupied.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem_checks.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"
#include "util/fixed_list.hpp"

namespace jitgemm {
namespace {

struct Operand {
  const char* name = "";
  const void* pointer = nullptr;
  Occupied memory;

  Operand() = default;
  Operand(const char* its_name, const void* its_pointer, std::int64_t bytes)
      : name(its_name), pointer(its_pointer), memory(its_pointer, bytes) {}
  Operand(const char* its_name, const void* its_pointer, const OperandMatrix& matrix)
      : name(its_name), pointer(its_pointer), memory(its_pointer, matrix) {}
};

void check_pointer(const Operand& operand, std::size_t alignment, const Problem& problem) {
  if (operand.pointer == nullptr) {
    invalid(ErrorCode::invalid_operand, std::string(operand.name) + " is null but the problem uses it: pass its memory",
            problem);
  }
  if (operand.memory.begin() % alignment != 0) {
    invalid(
        ErrorCode::invalid_operand,
        std::string(operand.name) + " is not a multiple of " + std::to_string(alignment) + " bytes: align the pointer",
        problem);
  }
}

void check_apart(const Operand& written, const Operand& other, const Problem& problem) {
  if (!written.memory.overlaps(other.memory)) return;
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
    all_.add({&operand, {operand.name.c_str(), operand.output ? value.out : value.in, lies}, like_d});
  }

  FixedList<One, most_epilogue_operands> all_;
};

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
  check_pointer(scales, 16, p);  // as the following product's TMA reads them
  check_apart(scales, d, p);
  if (workspace.pointer != nullptr) check_apart(scales, workspace, p);
  const auto check_input = [&](const char* name, const void* pointer, const auto& memory) {
    if (pointer != nullptr) check_apart(scales, {name, pointer, memory}, p);
  };
  const auto floats = [](std::int64_t count) { return count * std::int64_t(sizeof(float)); };
  if (reads_ab(p)) {
    check_input("A", operands.a, matrix_a(p));
    check_input("B", operands.b, matrix_b(p));
    check_input("scale_a", operands.scale_a, floats(scales_of_a(p)));
    check_input("scale_b", operands.scale_b, floats(scales_of_b(p)));
  }
  if (reads_c(p)) check_input("C", operands.c, matrix_c(p));
  if (p.epilogue.bias != Bias::none)
    check_input("bias", operands.bias, bias_elements(p) * std::int64_t(size_of(p.c.type)));
}

}  // namespace

NormalProblem with_operands(const NormalProblem& problem, const Operands& operands) {
  NormalProblem p = problem;
  if (is_empty(p)) return p;
  const auto set_alignment = [](Matrix& matrix, const Operand& operand) {
    matrix.alignment =
        alignment_of(operand.memory.begin() | std::uint64_t(matrix.ld | matrix.stride) * size_of(matrix.type));
  };

  const Operand d{"D", operands.d, matrix_d(p)};
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
    const Operand a{"A", operands.a, matrix_a(p)};
    check_input(a, p.a.type);
    set_alignment(p.a, a);
    if (has_pointers_to_b(p)) {
      check_aligned({"B, pointers to it,", operands.b, p.batch * std::int64_t(sizeof(void*))}, sizeof(void*));
    } else {
      const Operand b{"B", operands.b, matrix_b(p)};
      check_input(b, p.b.type);
      set_alignment(p.b, b);
    }
  }
  if (reads_c(p)) {
    const Operand c{"C", operands.c, matrix_c(p)};
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

}  // namespace jitgemm
