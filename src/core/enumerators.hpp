#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jitgemm/types.hpp"
#include "util/alternatives.hpp"

namespace jitgemm {

/// An enumerator and its name in texts.
template <typename Enum>
struct Enumerator {
  Enum value;
  std::string_view name;
};

/// All of an enumeration that problems and configurations are made of, in its order; of DataType those that elements
/// have.
template <typename Enum>
std::span<const Enumerator<Enum>> enumerators();

/// What an enumerator is, for errors.
template <typename Enum>
inline constexpr std::string_view enumeration_name = "";
template <>
inline constexpr std::string_view enumeration_name<DataType> = "type";
template <>
inline constexpr std::string_view enumeration_name<Layout> = "layout";
template <>
inline constexpr std::string_view enumeration_name<Bias> = "bias";
template <>
inline constexpr std::string_view enumeration_name<Activation> = "activation";
template <>
inline constexpr std::string_view enumeration_name<Scaling> = "scaling";
template <>
inline constexpr std::string_view enumeration_name<Grouping> = "grouping";
template <>
inline constexpr std::string_view enumeration_name<BatchMode> = "batch mode";
template <>
inline constexpr std::string_view enumeration_name<Accumulation> = "accumulation";

template <typename Enum>
std::string_view name_of(Enum value) {
  for (const Enumerator<Enum>& enumerator : enumerators<Enum>())
    if (enumerator.value == value) return enumerator.name;
  return "unknown";
}

template <typename Enum>
std::optional<Enum> parse_enumerator(std::string_view text) {
  for (const Enumerator<Enum>& enumerator : enumerators<Enum>())
    if (enumerator.name == text) return enumerator.value;
  return std::nullopt;
}

template <typename Enum>
bool is_known(Enum value) {
  return name_of(value) != "unknown";
}

/// "none, along_n or along_m"
template <typename Enum>
std::string names_of_all() {
  std::vector<std::string_view> names;
  for (const Enumerator<Enum>& enumerator : enumerators<Enum>()) names.push_back(enumerator.name);
  return alternatives(names);
}

}  // namespace jitgemm
