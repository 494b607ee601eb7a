#include "core/epilogue_function.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "core/data_types.hpp"
#include "core/enumerators.hpp"
#include "core/epilogue_text.hpp"
#include "core/groups.hpp"
#include "core/out_of_memory.hpp"
#include "core/pairing.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"
#include "util/hash.hpp"

namespace jitgemm {

template <>
std::span<const Enumerator<OperandShape>> enumerators() {
  static constexpr std::array all{Enumerator<OperandShape>{OperandShape::scalar, "scalar"},
                                  Enumerator<OperandShape>{OperandShape::along_m, "along_m"},
                                  Enumerator<OperandShape>{OperandShape::along_n, "along_n"},
                                  Enumerator<OperandShape>{OperandShape::matrix, "matrix"}};
  return all;
}

template <>
std::span<const Enumerator<Pairing>> enumerators() {
  static constexpr std::array all{Enumerator<Pairing>{Pairing::none, "none"},
                                  Enumerator<Pairing>{Pairing::halves, "halves"},
                                  Enumerator<Pairing>{Pairing::neighbours, "neighbours"}};
  return all;
}

namespace {

constexpr std::size_t most_code_bytes = 64 << 10;
constexpr std::size_t most_defined = 1 << 16;  // each is kept for good

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::invalid_problem, "the epilogue cannot be used: " + why);
}

/// Of an operand of this type, as the memory has it.
bool fits_compute_type(DataType type, DataType compute) {
  return type == compute || (compute == f32 && (type == f16 || type == bf16));
}

/// The next word of a line, which is taken off.
std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
  line.remove_prefix(word.size());
  return word;
}

/// Takes "// operand" off, or another mark; false, and nothing is, of another line.
bool take_mark(std::string_view& line, std::string_view mark) {
  std::string_view rest = line;
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  if (!rest.starts_with("//")) return false;
  rest.remove_prefix(2);
  if (next_word(rest) != mark) return false;
  line = rest;
  return true;
}

/// Whether it is "// pairs halves" or "// pairs neighbours": other comments may begin with that word.
std::optional<Pairing> take_pairs(std::string_view line) {
  if (!take_mark(line, "pairs")) return std::nullopt;
  const auto known = parse_enumerator<Pairing>(next_word(line));
  return known != Pairing::none && next_word(line).empty() ? known : std::nullopt;
}

/// Whether a line that is no such one was meant to be: no word follows, an unknown one alone, or more than a known one.
bool is_misspelt_pairs(std::string_view line) {
  if (!take_mark(line, "pairs")) return false;
  const bool known = parse_enumerator<Pairing>(next_word(line)).has_value();
  return known || next_word(line).empty();
}

void check(const EpilogueFunction& function) {
  if (!is_known(function.pairs)) refuse("its pairs are unknown: use " + names_of_all<Pairing>());
  if (function.operands.size() > most_epilogue_operands)
    refuse("it has " + std::to_string(function.operands.size()) + " operands: give " +
           std::to_string(most_epilogue_operands) + " at most");
  for (std::size_t i = 0; i < function.operands.size(); ++i) {
    const auto& [name, shape, type, output] = function.operands[i];
    if (!is_operand_name(name))
      refuse("\"" + name.substr(0, 40) +
             "\" is no name for an operand: use up to 32 lower-case letters, digits and _, and no word of C++, row, "
             "column or batch");
    for (std::size_t j = 0; j < i; ++j)
      if (function.operands[j].name == name) refuse("two operands are called " + name + ": rename one");
    if (!is_known(shape)) refuse("the shape of " + name + " is unknown: use " + names_of_all<OperandShape>());
    if (output && shape != OperandShape::matrix)
      refuse("the output " + name + " is " + std::string(name_of(shape)) +
             ", where many elements would write one: make it a matrix");
    if (shape != OperandShape::scalar && info_of(type).bits == 0)
      refuse("the type of " + name + " is unknown: use f16, bf16 or the accumulator's");
  }
  if (function.code.size() > most_code_bytes)
    refuse("its code has " + std::to_string(function.code.size()) + " bytes: give " + std::to_string(most_code_bytes) +
           " at most");
  // Else the text would read back as another function, of the same digest.
  int number = first_code_line(function);
  for (std::string_view rest = function.code; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    if (take_pairs(line))
      refuse("line " + std::to_string(number) + ": pairs come first, once, before operands and all else");
    if (number == 1 && is_misspelt_pairs(line))
      refuse("line 1: no pairs are called that: write \"// pairs halves\" or \"// pairs neighbours\", and no more");
    if (take_mark(line, "operand")) refuse("line " + std::to_string(number) + ": operands come first, before all else");
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (const std::string why =
          why_code_refused(function.code, first_code_line(function), function.pairs != Pairing::none);
      !why.empty())
    refuse(why);
}

EpilogueOperand parse_operand(std::string_view line, int number) {
  const auto unreadable = [number](const std::string& why) {
    refuse("line " + std::to_string(number) + ": " + why +
           ": write it like \"// operand in residual matrix bf16\" or \"// operand in limit scalar\"");
  };
  const std::string_view direction = next_word(line), name = next_word(line), shape = next_word(line),
                         type = next_word(line);
  EpilogueOperand operand{.name = std::string(name)};
  if (direction != "in" && direction != "out") unreadable("an operand is in or out");
  operand.output = direction == "out";
  if (const auto known = parse_enumerator<OperandShape>(shape))
    operand.shape = *known;
  else
    unreadable("\"" + std::string(shape) + "\" is no shape");
  if (operand.shape != OperandShape::scalar) {
    if (const auto known = parse_data_type(type))
      operand.type = *known;
    else
      unreadable("\"" + std::string(type) + "\" is no type");
  } else if (!type.empty()) {
    unreadable("a scalar has the accumulator's type");
  }
  if (!next_word(line).empty()) unreadable("an operand has no more words");
  return operand;
}

struct Registry {
  std::shared_mutex mutex;
  std::map<std::uint64_t, std::unique_ptr<const DefinedEpilogue>> defined;
};

Registry& registry() {
  static Registry& one = *new Registry;  // used by threads that outlive main()
  return one;
}

/// Never 0, which is none. With what pairing_of() reads.
std::uint64_t digest(const std::string& text, Pairing pairs) {
  const std::uint64_t bits =
      std::strtoull(digest_of("epilogue 1\n" + text).substr(0, 16).c_str(), nullptr, 16) & ~pairing_bits;
  return (bits != 0 ? bits : pairing_bits + 1) | std::uint64_t(pairs);
}

}  // namespace

int first_code_line(const EpilogueFunction& function) {
  return int(function.pairs != Pairing::none) + int(function.operands.size()) + 1;
}

std::string_view to_string(OperandShape shape) { return name_of(shape); }

std::string_view to_string(Pairing pairs) { return name_of(pairs); }

std::string to_string(const EpilogueFunction& function) {
  std::string text;
  if (function.pairs != Pairing::none) text.append("// pairs ").append(name_of(function.pairs)).append("\n");
  for (const EpilogueOperand& operand : function.operands) {
    text.append("// operand ").append(operand.output ? "out " : "in ").append(operand.name).append(" ");
    text.append(name_of(operand.shape));
    if (operand.shape != OperandShape::scalar) text.append(" ").append(to_string(operand.type));
    text.append("\n");
  }
  return text + function.code;
}

EpilogueFunction parse_epilogue(std::string_view text) {
  return with_memory_errors([&] {
    EpilogueFunction function;
    for (int number = 1; !text.empty(); ++number) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      if (take_mark(line, "operand"))
        function.operands.push_back(parse_operand(line, number));
      else if (const auto pairs = take_pairs(line); number == 1 && pairs)
        function.pairs = *pairs;
      else
        break;
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    function.code = text;
    check(function);
    return function;
  });
}

std::uint64_t define_epilogue(const EpilogueFunction& function) {
  return with_memory_errors([&] {
    check(function);
    std::string text = to_string(function);
    const std::uint64_t key = digest(text, function.pairs);
    Registry& known = registry();
    const std::unique_lock lock(known.mutex);
    if (const auto found = known.defined.find(key); found != known.defined.end()) {
      if (found->second->text == text) return key;
      refuse("its digest is that of another one: add a comment");
    }
    if (known.defined.size() >= most_defined)
      refuse("this process has defined " + std::to_string(most_defined) +
             ", which are kept: make what varies a scalar operand");
    known.defined.emplace(key, std::make_unique<DefinedEpilogue>(DefinedEpilogue{function, std::move(text)}));
    return key;
  });
}

const DefinedEpilogue* find_epilogue(std::uint64_t digest) {
  Registry& known = registry();
  const std::shared_lock lock(known.mutex);
  const auto found = known.defined.find(digest);
  return found == known.defined.end() ? nullptr : found->second.get();
}

EpilogueFunction epilogue_of(std::uint64_t digest) {
  return with_memory_errors([&] {
    if (const DefinedEpilogue* const found = find_epilogue(digest)) return found->function;
    refuse("this process has defined none with the digest " + std::to_string(digest) +
           ": call define_epilogue() first, or give its file with --epilogue");
  });
}

const EpilogueFunction& epilogue_function(const Problem& problem) {
  if (const DefinedEpilogue* const found = find_epilogue(problem.epilogue.function)) return found->function;
  throw Error(ErrorCode::internal, "a normalised problem has an epilogue that is not defined");
}

std::string why_epilogue_unsupported(const Problem& p) {
  if (!has_epilogue_function(p)) return {};
  const DefinedEpilogue* const defined = find_epilogue(p.epilogue.function);
  if (!defined)
    return "this process has defined no epilogue with the digest " + std::to_string(p.epilogue.function) +
           ": call define_epilogue() first, or give its file with --epilogue";
  const char* const beside = p.beta != 0                                 ? "beta"
                             : p.epilogue.bias != Bias::none             ? "bias"
                             : p.epilogue.activation != Activation::none ? "activation"
                                                                         : nullptr;
  if (beside)
    return std::string(beside) +
           " is given beside an epilogue of one's own: make C and bias operands of it, and the activation its code";
  if (has_pairs(p) && p.grouping == Grouping::along_k)
    return "no kernel of groups along k takes pairs of columns: use an epilogue of single ones";
  if (has_pairs(p) && p.n % 2 != 0)
    return "n = " + std::to_string(p.n) + " is odd, and the epilogue takes pairs of columns: give an even n";
  const DataType compute = compute_type_of(p);
  for (const EpilogueOperand& operand : defined->function.operands) {
    if (operand.shape != OperandShape::scalar && !fits_compute_type(operand.type, compute))
      return "the epilogue's operand " + operand.name + " is " + std::string(to_string(operand.type)) +
             " where sums are " + std::string(to_string(compute)) + ": use " +
             (compute == f32 ? "f16, bf16 or f32" : std::string(to_string(compute)));
  }
  return {};
}

OperandMatrix matrix_of(const EpilogueOperand& operand, const EpilogueValue& value, const Problem& p) {
  const bool is_matrix = operand.shape == OperandShape::matrix;
  OperandMatrix matrix{.extent = operand.shape == OperandShape::along_m ? p.m : columns_of_d(p),
                       .vectors = is_matrix ? p.m : 1,
                       .type = operand.type,
                       .ld = 0,
                       .batch = operand.shape == OperandShape::along_n ? p.batch : matrices_of_rows(p),
                       .stride = value.stride};
  matrix.ld = is_matrix && value.ld != 0 ? value.ld : matrix.packed_ld();
  const std::int64_t packed = is_matrix ? std::max<std::int64_t>(1, p.m) * matrix.ld : 0;
  if (matrix.stride == packed_stride) matrix.stride = packed;
  if (matrix.batch <= 1) matrix.stride = 0;
  return matrix;
}

double epilogue_bytes(const Problem& p) {
  double bytes = 0;
  for (const EpilogueOperand& operand : epilogue_function(p).operands) {
    if (operand.shape == OperandShape::scalar) continue;
    const OperandMatrix matrix = matrix_of(operand, {}, p);
    const double one = double(matrix.extent) * double(matrix.vectors) * double(size_of(operand.type));
    bytes += matrix.stride == 0 ? one : one * double(matrix.batch);
  }
  return bytes;
}

}  // namespace jitgemm
