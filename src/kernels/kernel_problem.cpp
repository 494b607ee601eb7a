#include "kernels/kernel_problem.hpp"

#include <utility>

#include "kernels/packing.hpp"

namespace jitgemm {

Problem kernel_problem(const Problem& normalised, const KernelConfig& config) {
  Problem p = packed_problem(normalised, config);
  if (!config.swap_ab) return p;
  const Problem in_order = p;
  const auto transposed = [](Layout layout) {
    return layout == Layout::row_major ? Layout::column_major : Layout::row_major;
  };
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  p.layout_a = transposed(in_order.layout_b);
  p.layout_b = transposed(in_order.layout_a);
  std::swap(p.lda, p.ldb);
  std::swap(p.stride_a, p.stride_b);
  std::swap(p.align_a, p.align_b);
  if (p.bias == Bias::along_m)
    p.bias = Bias::along_n;
  else if (p.bias == Bias::along_n)
    p.bias = Bias::along_m;
  return p;
}

}  // namespace jitgemm
