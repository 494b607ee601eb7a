#include "problem_text.hpp"

#include <fmt/core.h>

#include <charconv>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "core/type_rules.hpp"

namespace jitgemm::cli {
namespace {

[[noreturn]] void bad_option(const std::string& message) { throw Error(ErrorCode::invalid_option, message); }

/// All that have a name.
template <typename Enum>
std::vector<Enum> values_of() {
  std::vector<Enum> values;
  for (int i = 0; to_string(Enum(i)) != "unknown"; ++i) values.push_back(Enum(i));
  return values;
}

template <typename Enum>
std::string names(const std::vector<Enum>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 < values.size() ? ", " : " or ", to_string(values[i]));
  return text;
}

/// Of A, B and D in any combination that exists.
struct Types {
  std::vector<DataType> inputs, outputs;
};
Types supported_types() {
  std::set<DataType> inputs, outputs;
  for (DataType input : values_of<DataType>()) {
    for (DataType output : values_of<DataType>()) {
      if (!why_types_unsupported({.a = input, .b = input, .d = output}).empty()) continue;
      inputs.insert(input);
      outputs.insert(output);
    }
  }
  return {{inputs.begin(), inputs.end()}, {outputs.begin(), outputs.end()}};
}

template <typename T>
T number(std::string_view text, const std::string& given) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    bad_option(fmt::format("{} is not a number{}", given, std::is_integral_v<T> ? ": give an integer" : ""));
  }
  return value;
}

template <typename Enum>
Enum known(const char* what, const std::string& text, std::optional<Enum> value, const std::string& there_is) {
  if (!value) bad_option(fmt::format("unknown {} \"{}\": use {}", what, text, there_is));
  return *value;
}

DataType data_type(const std::string& text, const std::string& there_is) {
  return known("type", text, parse_data_type(text), there_is);
}

Layout layout(const std::string& text) {
  if (text == "n") return Layout::row_major;
  if (text == "t") return Layout::column_major;
  return known("layout", text, parse_layout(text), "row_major (n) or column_major (t)");
}

template <typename T>
struct NumberField {
  std::string_view name;
  T Problem::* value;
};
constexpr NumberField<std::int64_t> sizes[]{
    {"m", &Problem::m},
    {"n", &Problem::n},
    {"k", &Problem::k},
    {"lda", &Problem::lda},
    {"ldb", &Problem::ldb},
    {"ldc", &Problem::ldc},
    {"ldd", &Problem::ldd},
    {"batch", &Problem::batch},
    {"stride_a", &Problem::stride_a},
    {"stride_b", &Problem::stride_b},
    {"stride_c", &Problem::stride_c},
    {"stride_d", &Problem::stride_d},
};
constexpr NumberField<double> scalars[]{
    {"alpha", &Problem::alpha}, {"beta", &Problem::beta}, {"slope", &Problem::slope}};
constexpr NumberField<int> alignments[]{{"align_a", &Problem::align_a},
                                        {"align_b", &Problem::align_b},
                                        {"align_c", &Problem::align_c},
                                        {"align_d", &Problem::align_d}};

template <typename Fields>
bool set_number(const Fields& fields, Problem& problem, std::string_view name, const std::string& text,
                const std::string& given) {
  for (const auto& [field, value] : fields) {
    if (field != name) continue;
    problem.*value = number<std::decay_t<decltype(problem.*value)>>(text, given);
    return true;
  }
  return false;
}

}  // namespace

std::string input_type_names() { return names(supported_types().inputs); }
std::string output_type_names() { return names(supported_types().outputs); }
std::string bias_names() { return names(values_of<Bias>()); }
std::string activation_names() { return names(values_of<Activation>()); }
std::string accumulation_names() { return names(values_of<Accumulation>()); }

DataType default_output(DataType a) {
  if (is_fp8(a)) return bf16;
  return size_of(a) == 2 ? a : accumulator_of(a);
}

void set_field(Problem& p, std::string_view name, const std::string& value, const std::string& as_given) {
  const std::string given = as_given.empty() ? fmt::format("{}={}", name, value) : as_given;
  if (set_number(sizes, p, name, value, given) || set_number(scalars, p, name, value, given) ||
      set_number(alignments, p, name, value, given))
    return;
  if (name == "a")
    p.a = data_type(value, input_type_names());
  else if (name == "b")
    p.b = data_type(value, input_type_names());
  else if (name == "d")
    p.d = data_type(value, output_type_names());
  else if (name == "layout_a")
    p.layout_a = layout(value);
  else if (name == "layout_b")
    p.layout_b = layout(value);
  else if (name == "bias")
    p.bias = known("bias", value, parse_bias(value), bias_names());
  else if (name == "activation")
    p.activation = known("activation", value, parse_activation(value), activation_names());
  else if (name == "accumulation")
    p.accumulation = known("accumulation", value, parse_accumulation(value), accumulation_names());
  else
    bad_option(fmt::format("a problem has no field \"{}\": write it like \"{}\"", name, to_string(Problem{})));
}

void set_layouts(Problem& p, const std::string& text) {
  if (text.size() != 2 || text.find_first_not_of("nt") != std::string::npos)
    bad_option(fmt::format("unknown layout \"{}\": use nn, nt, tn or tt", text));
  p.layout_a = layout(text.substr(0, 1));
  p.layout_b = layout(text.substr(1));
}

Problem parse_problem(const std::string& line) {
  Problem problem;
  bool has_a = false, has_b = false, has_d = false;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    if (equals != std::string::npos) {
      const std::string name = word.substr(0, equals);
      set_field(problem, name, word.substr(equals + 1));
      has_a |= name == "a";
      has_b |= name == "b";
      has_d |= name == "d";
      continue;
    }
    const auto first = word.find('x'), second = word.find('x', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      bad_option(fmt::format("cannot read \"{}\" in a problem: write it like \"{}\" or 64x64x64", word,
                             to_string(Problem{.m = 64, .n = 64, .k = 64})));
    }
    set_field(problem, "m", word.substr(0, first));
    set_field(problem, "n", word.substr(first + 1, second - first - 1));
    set_field(problem, "k", word.substr(second + 1));
  }
  if (has_a && !has_b) problem.b = problem.a;
  if ((has_a || has_b) && !has_d) problem.d = default_output(problem.a);
  return problem;
}

}  // namespace jitgemm::cli
