#include "core/type_rules.hpp"

#include <vector>

#include "core/activations.hpp"
#include "core/enumerators.hpp"
#include "util/alternatives.hpp"

namespace jitgemm {
namespace {

std::string name(DataType type) { return info_of(type).bits != 0 ? std::string(to_string(type)) : "an unknown type"; }

}  // namespace

std::string why_types_unsupported(const Problem& p) {
  const DataTypeInfo& a = info_of(p.a.type);
  if (!a.partners.contains(p.b.type))
    return "no kernel multiplies a = " + name(p.a.type) + " by b = " + name(p.b.type) +
           ": use f16, bf16, tf32, f32, f64 or s8 for both, or e4m3 and e5m2";
  if (!a.outputs.contains(p.d.type)) {
    std::vector<std::string_view> outputs;
    for (const DataTypeInfo& info : data_types())
      if (a.outputs.contains(info.type)) outputs.push_back(info.name);
    return "no kernel turns a = " + name(p.a.type) + " into d = " + name(p.d.type) + ": use " + alternatives(outputs);
  }
  if (p.c.type != DataType::automatic && p.c.type != info_of(p.d.type).addend)
    return "no kernel adds c = " + name(p.c.type) + " to d = " + name(p.d.type) + ": use " +
           name(info_of(p.d.type).addend) + ", or automatic";
  if (!is_known(p.a.layout) || !is_known(p.b.layout)) return "unknown layout: use row_major or column_major";
  if (p.c.layout != Layout::row_major || p.d.layout != Layout::row_major)
    return "C and D are row-major: compute the transpose of a column-major D, with A and B, m and n and the bias's "
           "direction swapped";
  if (!is_known(p.epilogue.bias)) return "unknown bias: use " + names_of_all<Bias>();
  if (!is_known(p.epilogue.activation)) return "unknown activation: use " + names_of_all<Activation>();
  if (!is_known(p.accumulation)) return "unknown accumulation: use " + names_of_all<Accumulation>();
  if (a.accumulator == s32 && !info_of(p.epilogue.activation).takes_integers)
    return "no kernel applies " + std::string(to_string(p.epilogue.activation)) + " to integers: use " +
           names_of_activations_of_integers();
  return {};
}

DataType type_of_c(const Problem& p) { return p.c.type == DataType::automatic ? info_of(p.d.type).addend : p.c.type; }

}  // namespace jitgemm
