#include "core/type_rules.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace jitgemm {
namespace {

bool known(DataType type) { return size_of(type) != 0; }

/// Types that D may have, none for inputs that nothing multiplies.
std::span<const DataType> outputs_of(DataType a, DataType b) {
  static constexpr std::array of_fp8{f16, bf16, f32, e4m3, e5m2};
  static constexpr std::array of_halves{f16, bf16, f32};
  static constexpr std::array of_f32{f32}, of_f64{f64}, of_s8{s32};
  if (is_fp8(a) && is_fp8(b)) return of_fp8;
  if (a != b) return {};
  switch (a) {
    case f16:
    case bf16:
      return of_halves;
    case f32:
    case tf32:
      return of_f32;
    case f64:
      return of_f64;
    case s8:
      return of_s8;
    default:
      return {};
  }
}

std::string name(DataType type) { return known(type) ? std::string(to_string(type)) : "an unknown type"; }

}  // namespace

std::string why_types_unsupported(const Problem& p) {
  const std::span<const DataType> outputs = outputs_of(p.a, p.b);
  if (outputs.empty())
    return "no kernel multiplies a = " + name(p.a) + " by b = " + name(p.b) +
           ": use f16, bf16, tf32, f32, f64 or s8 for both, or e4m3 and e5m2";
  if (std::find(outputs.begin(), outputs.end(), p.d) == outputs.end()) {
    std::string list;
    for (DataType type : outputs) list += (list.empty() ? "" : type == outputs.back() ? " or " : ", ") + name(type);
    return "no kernel turns a = " + name(p.a) + " into d = " + name(p.d) + ": use " + list;
  }
  if (to_string(p.layout_a) == "unknown" || to_string(p.layout_b) == "unknown")
    return "unknown layout: use row_major or column_major";
  if (to_string(p.bias) == "unknown") return "unknown bias: use none, along_n or along_m";
  if (to_string(p.activation) == "unknown")
    return "unknown activation: use none, relu, leaky_relu, gelu_erf, gelu_tanh or silu";
  if (to_string(p.accumulation) == "unknown") return "unknown accumulation: use fast or promoted";
  if (p.a == s8 && p.activation != Activation::none && p.activation != Activation::relu)
    return "no kernel applies " + std::string(to_string(p.activation)) + " to integers: use none or relu";
  return {};
}

DataType accumulator_of(DataType a) { return a == f64 ? f64 : a == s8 ? s32 : f32; }

DataType type_of_c(const Problem& p) { return is_fp8(p.d) ? bf16 : p.d; }

}  // namespace jitgemm
