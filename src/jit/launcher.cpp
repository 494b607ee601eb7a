#include "jit/launcher.hpp"

#include "core/kernel_problem.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"

namespace jitgemm {
namespace {

constexpr int box_bytes = 128;  // layout_sm90.cuh

TensorMapSpec operand_map(const void* address, const OperandMatrix& matrix, int box_inner, int box_outer) {
  return {.address = address,
          .type = matrix.type,
          .inner = matrix.extent,
          .outer = matrix.vectors,
          .batch = matrix.stride == 0 ? 1 : matrix.batch,
          .stride = matrix.ld,
          .batch_stride = matrix.stride,
          .box_inner = box_inner,
          .box_outer = box_outer};
}

device::Scalar scalar(double x, DataType accumulator) {
  device::Scalar result{};
  if (accumulator == f64)
    result.f64 = x;
  else if (accumulator == s32)
    result.s32 = int(x);
  else
    result.f32 = float(x);
  return result;
}

}  // namespace

device::Arguments make_arguments(const Problem& asked, const KernelConfig& c, const LaunchShape& shape, const Operands& operands,
                                 const Workspace& workspace,
                                 const std::function<device::TensorMap(const TensorMapSpec&)>& tensor_map) {
  const Problem p = kernel_problem(asked, c);
  device::Arguments args{};
  args.a = c.swap_ab ? operands.b : operands.a;
  args.b = c.swap_ab ? operands.a : operands.b;
  args.c = operands.c;
  args.d = operands.d;
  args.bias = operands.bias;
  args.scale_a = operands.scale_a;
  args.scale_b = operands.scale_b;
  args.scale_d = operands.scale_d;
  args.lda = p.lda;
  args.ldb = p.ldb;
  args.ldc = p.ldc;
  args.ldd = p.ldd;
  args.stride_a = p.stride_a;
  args.stride_b = p.stride_b;
  args.stride_c = p.stride_c;
  args.stride_d = p.stride_d;
  args.m = int(p.m);
  args.n = int(p.n);
  args.k = reads_ab(p) ? int(p.k) : 0;
  const DataType accumulator = accumulator_of(p);
  args.alpha = scalar(p.alpha, accumulator);
  args.beta = scalar(p.beta, accumulator);
  args.slope = scalar(p.slope, accumulator);
  args.decomposition = shape.decomposition;
  args.partials = workspace.partials;
  args.counters = workspace.counters;

  if (c.main_loop == MainLoop::sm90) {
    const bool a_k_major = p.layout_a == Layout::row_major, b_k_major = p.layout_b == Layout::column_major;
    // A K-major tile is one box, any other boxes of block_k rows. Blocks that share it fetch as many of its rows each.
    const int box = box_bytes / int(size_of(p.a));
    const int rows_a = (a_k_major ? c.block_m : c.block_k) / c.cluster_n;
    const int rows_b = (b_k_major ? c.block_n : c.block_k) / c.cluster_m;
    args.map_a = tensor_map(operand_map(args.a, matrix_a(p), box, rows_a));
    args.map_b = tensor_map(operand_map(args.b, matrix_b(p), box, rows_b));
    const DBox d_box = d_box_of(c, p);
    if (stores_by_tma(c, p)) args.map_d = tensor_map(operand_map(operands.d, matrix_d(asked), d_box.columns, d_box.rows));
  }
  return args;
}

}  // namespace jitgemm
