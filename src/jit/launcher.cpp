#include "jit/launcher.hpp"

#include "core/problem.hpp"

namespace jitgemm {
namespace {

constexpr int box = 64;              // elements of A and B across, mainloop_sm90.cuh's BOX
constexpr int d_box_bytes_across = 128, d_box_rows = 64;

/// The map of an operand with `mn` rows (columns) and depth k: a K-major one is copied whole, block_mn rows at a time.
TensorMapSpec operand_map(const void* address, DataType type, bool k_major, std::int64_t mn, std::int64_t k, std::int64_t ld,
                          int block_mn, int block_k) {
  TensorMapSpec spec{.address = address, .type = type, .stride = ld, .box_inner = box};
  spec.inner = k_major ? k : mn;
  spec.outer = k_major ? mn : k;
  spec.box_outer = k_major ? block_mn : block_k;
  return spec;
}

}  // namespace

device::Arguments make_arguments(const Problem& p, const KernelConfig& c, const LaunchShape& shape, const Operands& operands,
                                 const Workspace& workspace,
                                 const std::function<device::TensorMap(const TensorMapSpec&)>& tensor_map) {
  device::Arguments args{};
  args.a = operands.a;
  args.b = operands.b;
  args.c = operands.c;
  args.d = operands.d;
  args.bias = operands.bias;
  args.lda = p.lda;
  args.ldb = p.ldb;
  args.ldc = p.ldc;
  args.ldd = p.ldd;
  args.m = int(p.m);
  args.n = int(p.n);
  args.k = reads_ab(p) ? int(p.k) : 0;
  args.alpha = float(p.alpha);
  args.beta = float(p.beta);
  args.slope = float(p.slope);
  args.decomposition = shape.decomposition;
  args.partials = static_cast<float*>(workspace.partials);
  args.counters = workspace.counters;

  if (c.main_loop == MainLoop::sm90) {
    const bool a_k_major = p.layout_a == Layout::row_major, b_k_major = p.layout_b == Layout::column_major;
    args.map_a = tensor_map(operand_map(operands.a, p.a, a_k_major, p.m, p.k, p.lda, c.block_m, c.block_k));
    args.map_b = tensor_map(operand_map(operands.b, p.b, b_k_major, p.n, p.k, p.ldb, c.block_n, c.block_k));
    if (p.align_d == 16)
      args.map_d = tensor_map({.address = operands.d,
                               .type = p.d,
                               .inner = p.n,
                               .outer = p.m,
                               .stride = p.ldd,
                               .box_inner = d_box_bytes_across / int(size_of(p.d)),
                               .box_outer = d_box_rows});
  }
  return args;
}

}  // namespace jitgemm
