#include <algorithm>
#include <charconv>
#include <concepts>
#include <string>
#include <type_traits>
#include <vector>

#include "core/activations.hpp"
#include "core/data_types.hpp"
#include "core/enumerators.hpp"
#include "core/groups.hpp"
#include "core/operand_matrix.hpp"
#include "core/out_of_memory.hpp"
#include "core/problem.hpp"
#include "core/problem_fields.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"
#include "util/number_text.hpp"

namespace jitgemm {
namespace {

[[noreturn]] void unreadable(const std::string& message) { throw Error(ErrorCode::invalid_problem, message); }

/// As the kernel gets it.
double rounded(double x, const Problem& problem) { return compute_type_of(problem) == f32 ? double(float(x)) : x; }

/// With the default wherever that means the same.
Problem in_short(const Problem& problem) {
  const Problem defaults;
  Problem p = problem;
  for_each_scalar([&](const ProblemField& field, auto member) {
    double& scalar = member(p);
    scalar = rounded(scalar, problem);
    if (!field.applies(p) || scalar == rounded(member(defaults), problem)) scalar = member(defaults);
  });
  const auto shorten = [&p](Matrix& matrix, const OperandMatrix& operand) {
    const std::int64_t ld = operand.ld == 0 ? operand.packed_ld() : operand.ld;
    const double elements = double(ld) * double(operand.vectors > 1 ? operand.vectors : 1);
    if (ld == operand.packed_ld()) matrix.ld = 0;
    if (p.batch <= 1 || double(operand.stride) == elements) matrix.stride = packed_stride;
  };
  shorten(p.a, matrix_a(problem));
  shorten(p.b, matrix_b(problem));
  shorten(p.c, matrix_c(problem));
  shorten(p.d, matrix_d(problem));
  if (!reads_c(p)) p.c.stride = packed_stride;
  if (p.grouping == Grouping::offsets) p.a.stride = p.c.stride = p.d.stride = packed_stride;
  if (p.grouping == Grouping::along_k) p.a.stride = p.b.stride = packed_stride;
  if (has_pointers_to_b(p)) p.b.stride = packed_stride;
  if (p.c.type == info_of(p.d.type).addend) p.c.type = DataType::automatic;
  return p;
}

/// With the digits that tell any two apart.
std::string scalar_text(double x, const Problem& problem) {
  return general_text(x, compute_type_of(problem) == f32 ? 9 : 17);
}

[[noreturn]] void unknown(std::string_view what, std::string_view text, const std::string& there_is) {
  unreadable("unknown " + std::string(what) + " \"" + std::string(text) + "\": use " + there_is);
}

template <typename T>
T parse_value(std::string_view text, std::string_view field) {
  if constexpr (std::same_as<T, Layout>) {
    if (text == "n") return Layout::row_major;
    if (text == "t") return Layout::column_major;
    if (const auto layout = parse_layout(text)) return *layout;
    unknown(enumeration_name<T>, text, "row_major (n) or column_major (t)");
  } else if constexpr (std::is_enum_v<T>) {
    if (const auto value = parse_enumerator<T>(text)) return *value;
    if constexpr (std::same_as<T, DataType>) {
      const std::string_view automatic = to_string(DataType::automatic);
      if (field == "c" && text == automatic) return DataType::automatic;
      std::string names = field == "a" || field == "b" ? input_type_names() : output_type_names();
      if (field == "c") names.append("; or ").append(automatic);
      unknown(enumeration_name<T>, text, names);
    } else {
      unknown(enumeration_name<T>, text, names_of_all<T>());
    }
  } else {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range && end == text.data() + text.size()) {
      unreadable(std::string(field) + "=" + std::string(text) + " is out of range: give " +
                 (std::integral<T> ? "an integer of " + std::to_string(8 * sizeof(T)) + " bits"
                                   : "0 or inf, or what a double can hold"));
    }
    if (error != std::errc() || end != text.data() + text.size())
      unreadable(std::string(field) + "=" + std::string(text) + " is not a number" +
                 (std::integral<T> ? ": give an integer" : ": write it as 0.5 or 5e-1"));
    return value;
  }
}

/// The next word, which is taken off; empty at the end.
std::string_view next_word(std::string_view& text) {
  constexpr std::string_view space = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(space), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(space));
  text.remove_prefix(word.size());
  return word;
}

std::string text_of(const Problem& problem) {
  const Problem p = in_short(problem), defaults;
  std::string text;
  for_each_field([&](const ProblemField& field, auto member) {
    const auto& value = member(p);
    if (!field.always_written && same_value(value, member(defaults))) return;
    text.append(text.empty() ? "" : " ").append(field.name).append("=");
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_enum_v<T>)
      text.append(to_string(value));
    else if constexpr (std::floating_point<T>)
      text.append(scalar_text(value, p));
    else
      text.append(std::to_string(value));
  });
  return text;
}

void read_field(Problem& problem, std::string_view name, std::string_view value) {
  bool found = false;
  for_each_field([&](const ProblemField& field, auto member) {
    if (field.name != name) return;
    member(problem) = parse_value<std::decay_t<decltype(member(problem))>>(value, name);
    found = true;
  });
  if (found) return;
  std::string names;
  for_each_field(
      [&names](const ProblemField& field, auto) { names.append(names.empty() ? "" : ", ").append(field.name); });
  unreadable("a problem has no field \"" + std::string(name) + "\": it has " + names);
}

Problem read_problem(std::string_view text) {
  Problem problem;
  std::vector<std::string_view> given;
  const auto is_given = [&given](std::string_view name) { return std::ranges::find(given, name) != given.end(); };
  const auto read = [&](std::string_view name, std::string_view value) {
    if (is_given(name)) unreadable("a problem's " + std::string(name) + " is given a second time: leave one out");
    read_field(problem, name, value);
    given.push_back(name);
  };
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) {
    if (const auto equals = word.find('='); equals != std::string_view::npos) {
      read(word.substr(0, equals), word.substr(equals + 1));
      continue;
    }
    const auto first = word.find('x'), second = word.find('x', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos)
      unreadable("cannot read \"" + std::string(word) + "\" in a problem: write it like \"" +
                 text_of(Problem{.m = 64, .n = 64, .k = 64}) + "\" or 64x64x64");
    read("m", word.substr(0, first));
    read("n", word.substr(first + 1, second - first - 1));
    read("k", word.substr(second + 1));
  }
  for (const std::string_view size : {"m", "n", "k"})
    if (!is_given(size) && (is_given("m") || is_given("n") || is_given("k")))
      unreadable("a problem's " + std::string(size) + " is missing: give m, n and k, or none of them");
  if (is_given("a") && !is_given("b")) problem.b.type = problem.a.type;
  if ((is_given("a") || is_given("b")) && !is_given("d")) problem.d.type = default_output(problem.a.type);
  return problem;
}

}  // namespace

std::string to_string(const Problem& problem) {
  return with_memory_errors([&] { return text_of(problem); });
}

void set_field(Problem& problem, std::string_view name, std::string_view value) {
  with_memory_errors([&] { read_field(problem, name, value); });
}

Problem parse_problem(std::string_view text) {
  return with_memory_errors([text] { return read_problem(text); });
}

DataType default_output(DataType a) { return info_of(a).usual_output; }

}  // namespace jitgemm
