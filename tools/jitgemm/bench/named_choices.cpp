#include "bench/named_choices.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "jitgemm/error.hpp"

namespace jitgemm::cli {
namespace {

/// Other arms' names, and what else the JSON of a shape has on their level.
constexpr std::array<std::string_view, 22> taken{
    "absent",  "at_hand", "best",     "check",     "cublas", "cublaslt", "cublaslt_candidates",
    "derived", "device",  "floor_us", "invariant", "k",      "m",        "model",
    "n",       "pinned",  "problem",  "protocol",  "serial", "sets",     "triton",
    "tuned"};
constexpr std::array<std::string_view, 2> numbered{"finalist", "repeat"};

bool is_word(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

}  // namespace

std::vector<NamedChoice> parse_named_choices(const std::vector<std::string>& texts) {
  std::vector<NamedChoice> choices;
  for (const std::string& text : texts) {
    const auto refuse = [&text](const std::string& why) {
      throw Error(ErrorCode::invalid_option, fmt::format("--choice {} {}", text, why));
    };
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals >= text.size() - 1) refuse("is not NAME=DIR");
    const NamedChoice choice{text.substr(0, equals), text.substr(equals + 1)};
    if (!is_word(choice.name)) refuse("has a name that is no word: use letters, digits, '_', '-' and '.'");
    const bool arm = std::ranges::count(taken, choice.name) > 0 ||
                     std::ranges::any_of(numbered, [&](auto prefix) { return choice.name.starts_with(prefix); });
    if (arm || std::ranges::any_of(choices, [&](const NamedChoice& other) { return other.name == choice.name; }))
      refuse("has the name of something else in the results: use another one");
    std::error_code ignored;
    if (!std::filesystem::is_directory(choice.directory, ignored))
      refuse("names no directory: give the cache directory that tuning wrote to");
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace jitgemm::cli
