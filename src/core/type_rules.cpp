#include "core/type_rules.hpp"

#include <algorithm>
#include <vector>

#include "core/activations.hpp"
#include "core/enumerators.hpp"
#include "core/groups.hpp"
#include "util/alternatives.hpp"

namespace jitgemm {
namespace {

/// "f16, bf16 or f32"
std::string names_of(const DataTypeSet& types) {
  std::vector<std::string_view> names;
  for (const DataTypeInfo& info : data_types())
    if (types.contains(info.type)) names.push_back(info.name);
  return alternatives(names);
}

std::string name(DataType type) { return info_of(type).bits != 0 ? std::string(to_string(type)) : "an unknown type"; }

std::string why_block_scales_unsupported(const Problem& p) {
  if (!has_block_scales(p)) return {};
  if (!is_fp8(p.a.type))
    return "no kernel scales blocks of a = " + name(p.a.type) + ": use a and b of e4m3 or e5m2, or other scaling";
  if (!is_of_blocks(p.a.scaling) || !is_of_blocks(p.b.scaling))
    return "blocks of one operand are scaled, and not of the other: use " +
           std::string(to_string(Scaling::block_1x128)) + " or " + std::string(to_string(Scaling::block_128x128)) +
           " for both";
  if (p.grouping == Grouping::along_k)
    return "groups along k begin anywhere in a block of k: use scales of rows and columns, or one value";
  if (has_groups(p) && p.a.scaling != Scaling::block_1x128)
    return "groups begin at any row, not only where 128 rows with one scale do: use scaling_a = " +
           std::string(to_string(Scaling::block_1x128));
  const double blocks_of_k = double(p.k) / 128 + 1;
  if (double(p.batch) * blocks_of_k * (double(std::max(p.m, p.n)) + 4) * sizeof(float) > 0x1p62)
    return "the scales of all matrices are larger than 2^62 bytes: lower the batch, m, n or k";
  return {};
}

/// Of D.
std::string why_own_scales_unsupported(const Problem& p) {
  if (p.d.scaling == Scaling::value) return {};
  if (p.d.scaling != Scaling::block_1x128)
    return "D gets scales of 1x128 of its own, or one value: use scaling_d = " +
           std::string(to_string(Scaling::block_1x128)) + " or " + std::string(to_string(Scaling::value));
  if (p.d.type != e4m3) return "no kernel gives d = " + name(p.d.type) + " scales of its own: use d = e4m3";
  if (p.batch > 1) return "no kernel gives the matrices of a batch scales of their own: call for one after the other";
  if (has_groups(p)) return "no kernel gives the rows of groups scales of their own: use scaling_d = value";
  if (p.epilogue.function != 0)
    return "no kernel gives D scales of its own behind an epilogue of one's own: use bias and activation";
  if (p.n % 16 != 0 || p.d.ld % 16 != 0)
    return "a D with scales of its own is stored 16 bytes at a time: use an n and an ldd that are multiples of 16";
  return {};
}

}  // namespace

std::string why_types_unsupported(const Problem& p) {
  const DataTypeInfo& a = info_of(p.a.type);
  if (!a.partners.contains(p.b.type))
    return "no kernel multiplies a = " + name(p.a.type) + " by b = " + name(p.b.type) +
           (a.partners.empty() ? ": use a = " + input_type_names() : ": with this a use b = " + names_of(a.partners));
  if (!a.outputs.contains(p.d.type))
    return "no kernel turns a = " + name(p.a.type) + " into d = " + name(p.d.type) + ": use " + names_of(a.outputs);
  if (p.c.type != DataType::automatic && p.c.type != info_of(p.d.type).addend)
    return "no kernel adds c = " + name(p.c.type) + " to d = " + name(p.d.type) + ": use " +
           name(info_of(p.d.type).addend) + ", or automatic";
  if (!is_known(p.a.layout) || !is_known(p.b.layout)) return "unknown layout: use row_major or column_major";
  if (p.c.layout != Layout::row_major || p.d.layout != Layout::row_major)
    return "C and D are row-major: compute the transpose of a column-major D, with A and B, m and n and the bias's "
           "direction swapped";
  if (!is_known(p.epilogue.bias)) return "unknown bias: use " + names_of_all<Bias>();
  if (!is_known(p.epilogue.activation)) return "unknown activation: use " + names_of_all<Activation>();
  for (const Matrix* matrix : {&p.a, &p.b, &p.c, &p.d})
    if (!is_known(matrix->scaling)) return "unknown scaling: use " + names_of_all<Scaling>();
  if (p.c.scaling != Scaling::value) return "C has no scales: leave its scaling at value";
  if (const std::string broken = why_own_scales_unsupported(p); !broken.empty()) return broken;
  if ((has_vector_scales(p) || has_block_scales(p)) && !takes_scales(p))
    return "no kernel scales a = " + name(p.a.type) + " into d = " + name(p.d.type) +
           " by vectors or blocks: use a and b of e4m3 or e5m2, or of s8 with d = f16, bf16 or f32, or scaling_a = "
           "scaling_b = "
           "value";
  if (const std::string broken = why_block_scales_unsupported(p); !broken.empty()) return broken;
  if (!is_known(p.grouping)) return "unknown grouping: use " + names_of_all<Grouping>();
  if (const std::string broken = why_groups_unsupported(p); !broken.empty()) return broken;
  if (!is_known(p.accumulation)) return "unknown accumulation: use " + names_of_all<Accumulation>();
  if (compute_type_of(p) == s32 && !info_of(p.epilogue.activation).takes_integers)
    return "no kernel applies " + std::string(to_string(p.epilogue.activation)) + " to integers: use " +
           names_of_activations_of_integers();
  return {};
}

DataType type_of_c(const Problem& p) { return p.c.type == DataType::automatic ? info_of(p.d.type).addend : p.c.type; }

}  // namespace jitgemm
