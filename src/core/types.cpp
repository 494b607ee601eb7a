#include "jitgemm/types.hpp"

#include <array>

namespace jitgemm {
namespace {

template <typename Enum, std::size_t N>
std::optional<Enum> parse(std::string_view text, const std::array<Enum, N>& values) {
  for (Enum value : values) {
    if (to_string(value) == text) return value;
  }
  return std::nullopt;
}

}  // namespace

std::size_t size_of(DataType type) { return type == f32 ? 4 : 2; }

std::string_view to_string(DataType type) {
  switch (type) {
    case DataType::f16: return "f16";
    case DataType::bf16: return "bf16";
    case DataType::f32: return "f32";
  }
  return "unknown";
}

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::row_major: return "row_major";
    case Layout::column_major: return "column_major";
  }
  return "unknown";
}

std::string_view to_string(Activation activation) {
  switch (activation) {
    case Activation::none: return "none";
    case Activation::relu: return "relu";
    case Activation::leaky_relu: return "leaky_relu";
  }
  return "unknown";
}

std::optional<DataType> parse_data_type(std::string_view text) { return parse(text, std::array{f16, bf16, f32}); }

std::optional<Layout> parse_layout(std::string_view text) {
  return parse(text, std::array{Layout::row_major, Layout::column_major});
}

std::optional<Activation> parse_activation(std::string_view text) {
  return parse(text, std::array{Activation::none, Activation::relu, Activation::leaky_relu});
}

}  // namespace jitgemm
