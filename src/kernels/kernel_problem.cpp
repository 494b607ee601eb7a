#include "kernels/kernel_problem.hpp"

#include <algorithm>
#include <utility>

#include "core/pairing.hpp"
#include "kernels/family.hpp"
#include "kernels/packing.hpp"

namespace jitgemm {
namespace {

/// Of an N-major B whose columns are pairs, where a kernel copies it as it is: what it copies at a time are neighbours
/// in memory that stay neighbours (operand_loader_sm80.cuh).
int alignment_of_pairs(const NormalProblem& p) {
  const int size = int(size_of(p.b.type));
  const bool halves = pairing_of(p) == Pairing::halves;
  if (size == 1) return halves ? 1 : p.b.alignment;
  if (!halves) return size;
  const auto bytes = std::uint64_t(columns_of_d(p)) * std::uint64_t(size) | 16;
  return std::min(p.b.alignment, int(bytes & -bytes));
}

}  // namespace

KernelProblem kernel_problem(const NormalProblem& normalised, const KernelConfig& config) {
  KernelProblem p(packed_problem(normalised, config));
  p.sharding = normalised.sharding;
  if (has_pairs(p) && p.b.layout == Layout::row_major && !config.pack_b) p.b.alignment = alignment_of_pairs(normalised);
  if (p.grouping == Grouping::along_k && !family_of(config).tensor_maps) {
    // Groups begin anywhere in a row of k, of which cp.async copies what is aligned. TMA begins before them
    // (group_ends_sm90.cuh).
    const int size = int(size_of(p.a.type));
    if (p.a.layout == Layout::row_major) p.a.alignment = size;
    if (p.b.layout == Layout::column_major) p.b.alignment = size;
  }
  if (!config.swap_ab) return p;
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  for (Matrix* matrix : {&p.a, &p.b})
    matrix->layout = matrix->layout == Layout::row_major ? Layout::column_major : Layout::row_major;
  Bias& bias = p.epilogue.bias;
  if (bias == Bias::along_m)
    bias = Bias::along_n;
  else if (bias == Bias::along_n)
    bias = Bias::along_m;
  return p;
}

}  // namespace jitgemm
