#include "jit/arguments.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/operand_matrix.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "core/problem_fields.hpp"
#include "core/type_rules.hpp"
#include "kernels/family.hpp"
#include "kernels/kernel_problem.hpp"
#include "kernels/packing.hpp"

namespace jitgemm {
namespace {

device::Scalar scalar(double x, DataType compute) {
  device::Scalar result{};
  if (compute == f64)
    result.f64 = x;
  else if (compute == s32)
    result.s32 = int(x);
  else
    result.f32 = float(x);
  return result;
}

/// By the list of fields, which has the order of the members.
device::Scalars<device::Scalar> scalars_of(const Problem& p) {
  constexpr std::size_t count = [] {
    std::size_t scalars = 0;
    for_each_scalar([&scalars](const ProblemField&, auto) { ++scalars; });
    return scalars;
  }();
  std::array<device::Scalar, count> values;
  std::size_t i = 0;
  for_each_scalar([&](const ProblemField&, auto member) { values[i++] = scalar(member(p), compute_type_of(p)); });
  return std::bit_cast<device::Scalars<device::Scalar>>(values);
}

/// The operands that the GEMM kernel sees: packed ones lie in the workspace.
Operands packed_operands(const KernelConfig& c, const Packing& packing, const LaunchShape& shape, const Operands& given,
                         const Workspace& workspace) {
  Operands operands = given;
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

/// B of a slab, whose columns of a pair's second kind lie `half` columns behind those of the first.
void pack_pairs(device::PackedOperand& b, const NormalProblem& p, std::int64_t half) {
  const std::int64_t width = columns_of_d(p);
  const bool is_cut = pairing_of(p) == Pairing::halves && half != width;
  if (interleaves_b(p)) {
    b.chunks = int(interleaved_columns(p) * std::int64_t(size_of(p.b.type)) / 16);
    b.half = int(half);
    if (is_cut) b.extent = int(half + width);
  } else if (is_cut) {  // two matrices, one behind the other once they are packed
    const bool row_major = p.b.layout == Layout::row_major;
    (row_major ? b.extent : b.vectors) = int(width);
    b.stride = row_major ? half : half * p.b.ld;
    b.batch = 2;
  }
}

const void* address_of(const TensorMapSpec& map, const void* operand) {
  if (!map.of_all_addresses) return operand;
  return std::bit_cast<const void*>(device::map_address(std::bit_cast<std::uintptr_t>(operand)));
}

/// What the GEMM kernel and the checking kernel are told alike.
template <typename Arguments>
void set_extents(Arguments& args, const Problem& p) {
  args.stride_a = p.a.stride;
  args.stride_b = p.b.stride;
  args.stride_c = p.c.stride;
  args.stride_d = p.d.stride;
  args.m = int(p.m);
  args.n = int(p.n);
  args.k = reads_ab(p) ? int(p.k) : 0;
  args.scalars = scalars_of(p);
}

device::FinishSumsArguments finish_sums_arguments(const Problem& p, const Operands& operands) {
  return {.c = operands.c,
          .bias = operands.bias,
          .d = operands.d,
          .scale_d = operands.scale_d,
          .ldc = p.c.ld,
          .ldd = p.d.ld,
          .m = int(p.m),
          .n = int(p.n),
          .scalars = scalars_of(p)};
}

device::BlockScalesLayout layout_of_block_scales(const NormalProblem& whole, const KernelConfig& c, std::int64_t row,
                                                 std::int64_t column) {
  device::BlockScalesLayout layout{.ld_scale_a = scale_ld(whole.a.scaling, whole.m, whole.k),
                                   .ld_scale_b = scale_ld(whole.b.scaling, whole.n, whole.k),
                                   .first_a = int(row),
                                   .first_b = int(column_of_d(whole, column))};
  if (c.swap_ab) {
    std::swap(layout.ld_scale_a, layout.ld_scale_b);
    std::swap(layout.first_a, layout.first_b);
  }
  return layout;
}

template <typename Arguments>
void set_scale_strides(Arguments& args, const NormalProblem& p, const KernelConfig& c) {
  args.stride_scale_a = scale_stride_a(p);
  args.stride_scale_b = scale_stride_b(p);
  if (c.swap_ab) std::swap(args.stride_scale_a, args.stride_scale_b);
}

}  // namespace

ArgumentsKind arguments_kind(const Problem& p, Sharding sharding) {
  if (sharding != Sharding::none) return ArgumentsKind::shards;
  const bool of_blocks = has_block_scales(p);
  if (has_groups(p)) return of_blocks ? ArgumentsKind::group_block_scales : ArgumentsKind::groups;
  if (has_epilogue_function(p)) {
    const bool has_scales = of_blocks || (has_pairs(p) && has_vector_scales(p));
    return has_scales ? ArgumentsKind::epilogue_scales : ArgumentsKind::custom_epilogue;
  }
  if (has_own_scales_d(p)) return ArgumentsKind::own_scales;
  if (!of_blocks) return ArgumentsKind::plain;
  return p.batch > 1 ? ArgumentsKind::batch_block_scales : ArgumentsKind::block_scales;
}

device::Arguments make_arguments(const NormalProblem& normalised, const KernelConfig& c, const LaunchShape& shape,
                                 const Operands& given, const Workspace& workspace, const EncodeTensorMap& encode) {
  const KernelProblem p = kernel_problem(normalised, c);
  const Operands operands = packs(c) ? packed_operands(c, packing_of(normalised, c), shape, given, workspace) : given;
  device::Arguments args{};
  args.a = c.swap_ab ? operands.b : operands.a;
  args.b = c.swap_ab ? operands.a : operands.b;
  args.c = operands.c;
  args.d = operands.d;
  args.bias = operands.bias;
  if (reads_ab(p)) {  // else a scale of NaN would outlive the product that it scales
    args.scale_a = c.swap_ab ? operands.scale_b : operands.scale_a;
    args.scale_b = c.swap_ab ? operands.scale_a : operands.scale_b;
  }
  args.scale_d = operands.scale_d;
  args.lda = p.a.ld;
  args.ldb = p.b.ld;
  args.ldc = p.c.ld;
  args.ldd = p.d.ld;
  set_extents(args, p);
  args.decomposition = shape.decomposition;
  args.holds_next_back = shape.holds_next_back;
  if (c.cluster_at_launch) {
    args.cluster_m_bits = static_cast<unsigned char>(std::countr_zero(unsigned(c.cluster_m)));
    args.cluster_n_bits = static_cast<unsigned char>(std::countr_zero(unsigned(c.cluster_n)));
    args.cluster_row = static_cast<unsigned char>(((1 << c.cluster_m * c.cluster_n) - 1) / ((1 << c.cluster_m) - 1));
  }
  args.partials = workspace.memory;
  args.counters = workspace.counters;

  if (const auto tensor_maps = family_of(c).tensor_maps) {
    TensorMaps maps = tensor_maps(normalised, p, c);
    maps.a.address = address_of(maps.a, args.a);
    maps.b.address = address_of(maps.b, args.b);
    maps.d.address = args.d;
    args.map_a = encode(maps.a);
    args.map_b = encode(maps.b);
    if (maps.has_d()) args.map_d = encode(maps.d);
  }
  return args;
}

device::BlockScalesArguments make_block_scales_arguments(const device::Arguments& arguments, const NormalProblem& whole,
                                                         const KernelConfig& c, std::int64_t row, std::int64_t column) {
  device::BlockScalesArguments args{};
  static_cast<device::Arguments&>(args) = arguments;
  static_cast<device::BlockScalesLayout&>(args) = layout_of_block_scales(whole, c, row, column);
  return args;
}

device::BatchBlockScalesArguments make_batch_block_scales_arguments(const device::BlockScalesArguments& arguments,
                                                                    const NormalProblem& whole, const KernelConfig& c) {
  device::BatchBlockScalesArguments args{};
  static_cast<device::BlockScalesArguments&>(args) = arguments;
  set_scale_strides(args, whole, c);
  return args;
}

device::GroupBlockScalesArguments make_group_block_scales_arguments(const device::GroupArguments& arguments,
                                                                    const NormalProblem& p, const KernelConfig& c) {
  device::GroupBlockScalesArguments args{};
  static_cast<device::GroupArguments&>(args) = arguments;
  static_cast<device::BlockScalesLayout&>(args) = layout_of_block_scales(p, c, 0, 0);
  set_scale_strides(args, p, c);
  return args;
}

device::OwnScalesArguments make_own_scales_arguments(const device::BlockScalesArguments& arguments,
                                                     const NormalProblem& whole, std::int64_t row, std::int64_t column,
                                                     const Operands& operands) {
  device::OwnScalesArguments args{};
  static_cast<device::BlockScalesArguments&>(args) = arguments;
  args.ld_scales_d = scale_ld(whole.d.scaling, whole.m, whole.n);
  args.scales_d = operands.scales_d + column / 128 * args.ld_scales_d + row;  // slabs are of whole tiles
  return args;
}

device::CustomEpilogueArguments make_custom_epilogue_arguments(const device::Arguments& arguments,
                                                               const NormalProblem& whole, const Operands& operands,
                                                               std::int64_t row, std::int64_t column) {
  device::CustomEpilogueArguments args{};
  static_cast<device::Arguments&>(args) = arguments;
  column = column_of_d(whole, column);
  args.first_row = int(row);
  args.first_column = int(column);
  if (!has_epilogue_function(whole)) return args;
  const std::vector<EpilogueOperand>& described = epilogue_function(whole).operands;
  for (std::size_t i = 0; i < described.size(); ++i) {
    const EpilogueOperand& operand = described[i];
    const EpilogueValue& value = operands.epilogue[i];
    device::EpilogueOperandArguments& own = args.operands[i];
    if (operand.shape == OperandShape::scalar) {
      own.scalar = scalar(value.scalar, compute_type_of(whole));
      continue;
    }
    const OperandMatrix matrix = matrix_of(operand, value, whole);
    const auto size = std::int64_t(size_of(operand.type));
    const std::int64_t first = operand.shape == OperandShape::along_m   ? row
                               : operand.shape == OperandShape::along_n ? column
                                                                        : row * matrix.ld + column;
    own.data = static_cast<char*>(operand.output ? value.out : const_cast<void*>(value.in)) + first * size;
    own.ld = matrix.ld;
    own.stride = matrix.stride;
    own.in_pairs = (std::bit_cast<std::uintptr_t>(own.data) | std::uint64_t((matrix.ld | matrix.stride) * size)) %
                       std::uint64_t(2 * size) ==
                   0;
  }
  return args;
}

device::EpilogueScalesArguments make_epilogue_scales_arguments(const device::CustomEpilogueArguments& arguments,
                                                               const NormalProblem& whole, const KernelConfig& c,
                                                               std::int64_t row, std::int64_t column) {
  device::EpilogueScalesArguments args{};
  static_cast<device::CustomEpilogueArguments&>(args) = arguments;
  static_cast<device::BlockScalesLayout&>(args) = layout_of_block_scales(whole, c, row, column);
  set_scale_strides(args, whole, c);
  args.half = int(pair_distance(whole));
  return args;
}

device::GroupArguments make_group_arguments(const device::CustomEpilogueArguments& arguments, const NormalProblem& p,
                                            const KernelConfig& c, const Operands& operands,
                                            const Workspace& workspace) {
  device::GroupArguments args{};
  static_cast<device::CustomEpilogueArguments&>(args) = arguments;
  const device::Decomposition& d = arguments.decomposition;
  const bool along_k = p.grouping == Grouping::along_k;
  args.groups = {int(p.batch), int(along_k ? p.k : p.m), c.swap_ab ? d.tiles_m : d.tiles_n, c.group_m};
  args.group_rows = operands.group_rows;
  args.faults = workspace.group_faults;
  args.stride_scale_a = p.grouping == Grouping::counts ? p.m : 0;
  args.stride_scale_b = along_k ? 0 : p.n;
  if (c.swap_ab) std::swap(args.stride_scale_a, args.stride_scale_b);
  return args;
}

int places_of_shard(const KernelConfig& c, const LaunchShape& shape) {
  return shape.decomposition.tiles_m * c.cluster_m * shape.decomposition.tiles_n * c.cluster_n * c.warps / 4;
}

device::ShardArguments make_shard_arguments(const device::Arguments& arguments, const NormalProblem& p,
                                            const KernelConfig& c, const LaunchShape& shape,
                                            const ShardOperands& shards, const EncodeTensorMap& encode) {
  device::ShardArguments args{};
  static_cast<device::Arguments&>(args) = arguments;
  args.rank = shards.rank;
  args.ranks = shards.ranks;
  args.epoch = shards.epoch;
  args.arrived = shards.arrived;
  args.places = places_of_shard(c, shape);
  args.sent = shards.sent;
  std::ranges::copy(shards.sent_to, args.sent_to);
  std::ranges::copy(shards.arrived_at, args.arrived_at);
  args.received = shards.received;
  args.ld_staged = shards.staged_ld;
  args.stride_staged = p.m * shards.staged_ld;
  args.patience = shards.patience;
  const TensorMaps maps = family_of(c).tensor_maps(p, kernel_problem(p, c), c);
  const auto encode_one = [&](TensorMapSpec map, const void* address, std::int64_t ld) {
    map.address = address;
    map.stride = ld;
    map.batch = 1;
    return encode(map);
  };
  if (p.sharding == Sharding::gathered_a) {
    args.maps[0] = encode_one(maps.a, shards.own_a, shards.own_a_ld);
    return args;
  }
  const auto shard_bytes = args.stride_staged * std::int64_t(size_of(p.d.type));
  for (int rank = 0; rank < shards.ranks; ++rank)
    args.maps[rank] = encode_one(maps.d, static_cast<char*>(shards.sent) + rank * shard_bytes, shards.staged_ld);
  return args;
}

device::PackArguments make_pack_arguments(const NormalProblem& normalised, const KernelConfig& c,
                                          const Packing& packing, const LaunchShape& shape, const Operands& given,
                                          const Workspace& workspace, std::int64_t all_columns) {
  const NormalProblem p = packed_problem(normalised, c);
  const Operands packed = packed_operands(c, packing, shape, given, workspace);
  device::PackArguments args{};
  if (c.pack_a)
    args.operands[0] = packed_operand(matrix_a(normalised), matrix_a(p), given.a, packed.a, packing.blocks_a);
  if (c.pack_b)
    args.operands[1] = packed_operand(matrix_b(normalised), matrix_b(p), given.b, packed.b, packing.blocks_b);
  if (c.pack_b && has_pairs(normalised)) pack_pairs(args.operands[1], normalised, all_columns);
  return args;
}

device::SumEpilogueArguments make_sum_epilogue_arguments(const NormalProblem& p, const Operands& operands,
                                                         std::span<const void* const> sources,
                                                         std::int64_t ld_sources) {
  device::SumEpilogueArguments args{};
  static_cast<device::FinishSumsArguments&>(args) = finish_sums_arguments(p, operands);
  for (const void* source : sources) args.sources[args.source_count++] = source;
  args.ld_sources = ld_sources;
  return args;
}

device::OneShotArguments make_one_shot_arguments(const NormalProblem& p, const Operands& operands, const void* sums) {
  device::OneShotArguments args{};
  static_cast<device::FinishSumsArguments&>(args) = finish_sums_arguments(p, operands);
  args.sums = sums;
  return args;
}

device::CheckArguments make_check_arguments(const NormalProblem& p, const Operands& operands) {
  device::CheckArguments args{};
  args.a = operands.a;
  args.b = operands.b;
  args.c = operands.c;
  args.bias = operands.bias;
  args.d = operands.d;
  if (reads_ab(p)) {  // as in make_arguments()
    args.scale_a = operands.scale_a;
    args.scale_b = operands.scale_b;
  }
  args.scale_d = operands.scale_d;
  const auto steps = [](const Matrix& matrix, long long& row, long long& column) {
    row = matrix.layout == Layout::row_major ? matrix.ld : 1;
    column = matrix.layout == Layout::row_major ? 1 : matrix.ld;
  };
  steps(p.a, args.row_a, args.k_a);
  steps(p.b, args.k_b, args.column_b);
  args.row_c = p.c.ld;
  args.row_d = p.d.ld;
  set_extents(args, p);
  return args;
}

Operands operands_at(const NormalProblem& p, const Operands& operands, std::int64_t row, std::int64_t column) {
  const auto at = [](const void* matrix, std::int64_t element, DataType type) {
    return matrix ? static_cast<const char*>(matrix) + element * std::int64_t(size_of(type)) : nullptr;
  };
  Operands part = operands;
  part.a = at(operands.a, p.a.layout == Layout::row_major ? row * p.a.ld : row, p.a.type);
  const std::int64_t first_b = pairing_of(p) == Pairing::halves ? column_of_d(p, column) : column;
  part.b = at(operands.b, p.b.layout == Layout::row_major ? first_b : first_b * p.b.ld, p.b.type);
  part.c = at(operands.c, row * p.c.ld + column, type_of_c(p));
  part.d = const_cast<char*>(at(operands.d, row * p.d.ld + column_of_d(p, column), p.d.type));
  if (p.epilogue.bias != Bias::none)
    part.bias = at(operands.bias, p.epilogue.bias == Bias::along_m ? row : column, type_of_c(p));
  if (operands.scale_a && p.a.scaling == Scaling::vector) part.scale_a = operands.scale_a + row;
  if (operands.scale_b && p.b.scaling == Scaling::vector) part.scale_b = operands.scale_b + first_b;
  return part;
}

}  // namespace jitgemm
