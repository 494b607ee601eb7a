#include "jit/launcher.hpp"

#include <algorithm>

#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "jit/source_generator.hpp"
#include "kernels/family.hpp"
#include "kernels/kernel_problem.hpp"
#include "kernels/packing.hpp"

namespace jitgemm {
namespace {

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

/// The operands that the GEMM kernel sees: packed ones lie in the workspace.
Operands packed_operands(const Problem& asked, const KernelConfig& c, const LaunchShape& shape, const Operands& given,
                         const Workspace& workspace) {
  Operands operands = given;
  if (!packs(c)) return operands;
  const Packing packing = packing_of(asked, c);
  const char* packed = static_cast<const char*>(workspace.memory) + shape.packed_offset();
  if (c.pack_a) operands.a = packed + packing.offset_a;
  if (c.pack_b) operands.b = packed + packing.offset_b;
  return operands;
}

/// `source` and `packed` are one operand before and after.
device::PackedOperand packed_operand(const OperandMatrix& source, const OperandMatrix& packed, const void* from,
                                     const void* to, int blocks) {
  const auto size = std::int64_t(size_of(packed.type));
  return {.source = from,
          .packed = const_cast<void*>(to),
          .ld = source.ld,
          .stride = source.stride,
          .extent = int(source.extent),
          .vectors = int(source.vectors),
          .batch = packed.stride == 0 ? 1 : int(packed.batch),
          .chunks = int((packed.extent * size + 15) / 16),
          .row_chunks = int(packed.ld * size / 16),
          .blocks = blocks};
}

device::PackArguments make_pack_arguments(const Problem& asked, const KernelConfig& c, const LaunchShape& shape,
                                          const Operands& given, const Workspace& workspace) {
  const Problem p = packed_problem(asked, c);
  const Packing packing = packing_of(asked, c);
  const Operands packed = packed_operands(asked, c, shape, given, workspace);
  device::PackArguments args{};
  if (c.pack_a) args.operands[0] = packed_operand(matrix_a(asked), matrix_a(p), given.a, packed.a, packing.blocks_a);
  if (c.pack_b) args.operands[1] = packed_operand(matrix_b(asked), matrix_b(p), given.b, packed.b, packing.blocks_b);
  return args;
}

/// From an element of D on: what it and those right of and below it are computed from.
Operands operands_at(const Problem& p, const Operands& operands, std::int64_t row, std::int64_t column) {
  const auto at = [](const void* matrix, std::int64_t element, DataType type) {
    return matrix ? static_cast<const char*>(matrix) + element * std::int64_t(size_of(type)) : nullptr;
  };
  Operands part = operands;
  part.a = at(operands.a, p.layout_a == Layout::row_major ? row * p.lda : row, p.a);
  part.b = at(operands.b, p.layout_b == Layout::row_major ? column : column * p.ldb, p.b);
  part.c = at(operands.c, row * p.ldc + column, type_of_c(p));
  part.d = const_cast<char*>(at(operands.d, row * p.ldd + column, p.d));
  if (p.bias != Bias::none) part.bias = at(operands.bias, p.bias == Bias::along_m ? row : column, type_of_c(p));
  return part;
}

}  // namespace

device::Arguments make_arguments(const Problem& asked, const KernelConfig& c, const LaunchShape& shape,
                                 const Operands& given, const Workspace& workspace,
                                 const std::function<device::TensorMap(const TensorMapSpec&)>& tensor_map) {
  const Problem p = kernel_problem(asked, c);
  const Operands operands = packed_operands(asked, c, shape, given, workspace);
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
  args.partials = workspace.memory;
  args.counters = workspace.counters;

  if (const auto tensor_maps = family_of(c).tensor_maps) {
    TensorMaps maps = tensor_maps(asked, p, c);
    maps.a.address = args.a;
    maps.b.address = args.b;
    maps.d.address = args.d;
    args.map_a = tensor_map(maps.a);
    args.map_b = tensor_map(maps.b);
    if (maps.has_d()) args.map_d = tensor_map(maps.d);
  }
  return args;
}

CallKernels get_kernels(KernelStore& store, const Problem& problem, const KernelConfig& config,
                        const LaunchShape& shape, const DeviceInfo& device) {
  CallKernels kernels;
  if (shape.packing.grid > 0)
    kernels.packing = store.get(generate_packing(problem, config, device), shape.packing.smem_bytes);
  kernels.gemm = store.get(generate(problem, config, device), shape.smem_bytes);
  return kernels;
}

void for_each_launch(const Problem& problem, const KernelConfig& config, const LaunchShape& shape,
                     const Operands& operands, const Workspace& workspace,
                     const std::function<device::TensorMap(const TensorMapSpec&)>& tensor_map,
                     const std::function<void(const LaunchShape&, const CallArguments&)>& launch) {
  CallArguments arguments{};
  const Slab slab = slab_of(problem, config);
  if (is_whole(slab, problem)) {
    if (packs(config)) arguments.packing = make_pack_arguments(problem, config, shape, operands, workspace);
    arguments.gemm = make_arguments(problem, config, shape, operands, workspace, tensor_map);
    return launch(shape, arguments);
  }
  for (std::int64_t column = 0; column < problem.n; column += slab.columns) {
    for (std::int64_t row = 0; row < problem.m; row += slab.rows) {
      Problem part = problem;
      part.m = std::min(slab.rows, problem.m - row);
      part.n = std::min(slab.columns, problem.n - column);
      const Operands its = operands_at(problem, operands, row, column);
      LaunchShape its_shape = launch_shape(part, config);
      arguments.packing = make_pack_arguments(part, config, its_shape, its, workspace);
      arguments.gemm = make_arguments(part, config, its_shape, its, workspace, tensor_map);
      if (row > 0) {  // the slab above has packed the same columns of B
        its_shape.packing.grid -= arguments.packing.operands[1].blocks;
        arguments.packing.operands[1].blocks = 0;
      }
      launch(its_shape, arguments);
    }
  }
}

void launch_kernels(Backend& backend, const Kernel* packing, const Kernel& gemm, const LaunchShape& shape,
                    const CallArguments& arguments, Stream stream) {
  if (packing && shape.packing.grid > 0)
    backend.launch(*packing->loaded, shape.packing, bytes_of(arguments.packing), stream);
  backend.launch(*gemm.loaded, shape, bytes_of(arguments.gemm), stream);
}

}  // namespace jitgemm
