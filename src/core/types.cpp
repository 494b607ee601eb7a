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

std::size_t size_of(DataType type) {
  switch (type) {
    case e4m3:
    case e5m2:
    case s8:
      return 1;
    case f16:
    case bf16:
      return 2;
    case f32:
    case tf32:
    case s32:
      return 4;
    case f64:
      return 8;
  }
  return 0;
}

std::string_view to_string(DataType type) {
  switch (type) {
    case f16:
      return "f16";
    case bf16:
      return "bf16";
    case f32:
      return "f32";
    case tf32:
      return "tf32";
    case f64:
      return "f64";
    case e4m3:
      return "e4m3";
    case e5m2:
      return "e5m2";
    case s8:
      return "s8";
    case s32:
      return "s32";
  }
  return "unknown";
}

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::row_major:
      return "row_major";
    case Layout::column_major:
      return "column_major";
  }
  return "unknown";
}

std::string_view to_string(Bias bias) {
  switch (bias) {
    case Bias::none:
      return "none";
    case Bias::along_n:
      return "along_n";
    case Bias::along_m:
      return "along_m";
  }
  return "unknown";
}

std::string_view to_string(Activation activation) {
  switch (activation) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::leaky_relu:
      return "leaky_relu";
    case Activation::gelu_erf:
      return "gelu_erf";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
  }
  return "unknown";
}

std::string_view to_string(Accumulation accumulation) {
  switch (accumulation) {
    case Accumulation::fast:
      return "fast";
    case Accumulation::promoted:
      return "promoted";
  }
  return "unknown";
}

std::optional<DataType> parse_data_type(std::string_view text) {
  return parse(text, std::array{f16, bf16, f32, tf32, f64, e4m3, e5m2, s8, s32});
}

std::optional<Layout> parse_layout(std::string_view text) {
  return parse(text, std::array{Layout::row_major, Layout::column_major});
}

std::optional<Bias> parse_bias(std::string_view text) {
  return parse(text, std::array{Bias::none, Bias::along_n, Bias::along_m});
}

std::optional<Activation> parse_activation(std::string_view text) {
  return parse(text, std::array{Activation::none, Activation::relu, Activation::leaky_relu, Activation::gelu_erf,
                                Activation::gelu_tanh, Activation::silu});
}

std::optional<Accumulation> parse_accumulation(std::string_view text) {
  return parse(text, std::array{Accumulation::fast, Accumulation::promoted});
}

}  // namespace jitgemm
