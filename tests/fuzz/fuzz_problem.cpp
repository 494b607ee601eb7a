// Problems, configurations and operands of any field values, enumerators that do not exist among them, through
// everything that judges and sizes a launch.
#include <array>
#include <cmath>
#include <vector>

#include "core/activations.hpp"
#include "core/data_types.hpp"
#include "core/kernel_config_hash.hpp"
#include "core/kernel_interface.hpp"
#include "core/operands.hpp"
#include "core/problem.hpp"
#include "core/problem_fields.hpp"
#include "fuzz.hpp"
#include "jitgemm/error.hpp"
#include "kernels/launch_shape.hpp"
#include "plan/cost_model.hpp"
#include "plan/ranking.hpp"

using namespace jitgemm;
using fuzz::expect;

namespace {

/// Of any size, but often of one that kernels see.
std::int64_t size_from(fuzz::Bytes& input) {
  switch (input.take<std::uint8_t>() % 4) {
    case 0:
      return input.take<std::uint8_t>();
    case 1:
      return input.take<std::uint16_t>();
    case 2:
      return input.take<std::int32_t>();
    default:
      return input.take<std::int64_t>();
  }
}

/// Of any value, but often of a proper one.
template <typename Enum>
Enum enum_from(fuzz::Bytes& input, int count) {
  const auto value = input.take<std::uint8_t>();
  return Enum(value < 0xf0 ? value % count : value);
}

int alignment_from(fuzz::Bytes& input) {
  const auto value = input.take<std::uint8_t>();
  return value < 0xf0 ? 1 << value % 6 : input.take<int>();
}

double scalar_from(fuzz::Bytes& input) {
  const auto value = input.take<std::uint8_t>();
  return value < 0x80 ? double(value % 3) - 1 : input.take<double>();
}

Problem problem_from(fuzz::Bytes& input) {
  Problem p;
  for (auto Problem::* field : {&Problem::m, &Problem::n, &Problem::k}) p.*field = size_from(input);
  p.a.type = enum_from<DataType>(input, int(data_types().size()));
  p.b.type = input.take<bool>() ? p.a.type : enum_from<DataType>(input, int(data_types().size()));
  p.d.type = enum_from<DataType>(input, int(data_types().size()));
  p.a.layout = enum_from<Layout>(input, 2);
  p.b.layout = enum_from<Layout>(input, 2);
  if (input.take<bool>())
    for (Matrix* matrix : {&p.a, &p.b, &p.c, &p.d}) matrix->ld = size_from(input);
  if (input.take<bool>()) {
    p.batch = size_from(input);
    for (Matrix* matrix : {&p.a, &p.b, &p.c, &p.d})
      matrix->stride = input.take<bool>() ? size_from(input) : packed_stride;
  }
  for_each_scalar([&](const ProblemField&, auto member) { member(p) = scalar_from(input); });
  p.epilogue.bias = enum_from<Bias>(input, 3);
  p.epilogue.activation = enum_from<Activation>(input, int(activations().size()));
  if (input.take<bool>())
    for (Matrix* matrix : {&p.a, &p.b, &p.c, &p.d}) matrix->alignment = alignment_from(input);
  p.accumulation = enum_from<Accumulation>(input, 2);
  return p;
}

int extent_from(fuzz::Bytes& input) {
  const auto value = input.take<std::uint8_t>();
  return value < 0xf0 ? 1 << value % 10 : input.take<int>();
}

int count_from(fuzz::Bytes& input) {
  const auto value = input.take<std::uint8_t>();
  return value < 0xf0 ? value : input.take<int>();
}

KernelConfig config_from(fuzz::Bytes& input) {
  KernelConfig c;
  c.main_loop = enum_from<MainLoop>(input, 2);
  c.block_m = extent_from(input);
  c.block_n = extent_from(input);
  c.block_k = extent_from(input);
  c.group_m = count_from(input);
  c.stages = count_from(input);
  c.warps = extent_from(input);
  if (input.take<std::uint8_t>() >= 0xf0) c.cluster_m = input.take<int>(), c.cluster_n = input.take<int>();
  c.schedule = enum_from<Schedule>(input, 6);
  c.splits = c.schedule == Schedule::split_k ? count_from(input) : 1;
  c.grid = count_from(input);
  const auto packed = input.take<std::uint8_t>();
  c.pack_a = packed & 1;
  c.pack_b = packed & 2;
  return c;
}

const RatedDevice& device_from(fuzz::Bytes& input) {
  static const auto& devices =
      *new std::array{RatedDevice(device_info_for("sm_80")), RatedDevice(device_info_for("sm_86")),
                      RatedDevice(device_info_for("sm_89")), RatedDevice(device_info_for("sm_90a")),
                      RatedDevice(device_info_for("sm_120a"))};
  return devices[input.take<std::uint8_t>() % devices.size()];
}

/// Each k-block of each tile belongs to one CTA, and what is partial has a slot and a counter of its own.
template <device::Partition PARTITION>
void check_work(const LaunchShape& shape) {
  const device::Decomposition& d = shape.decomposition;
  const auto tiles = std::int64_t(device::tile_count(d));
  std::vector<std::uint8_t> done(std::size_t(tiles * d.k_blocks));
  for (int cta = 0; cta < d.ctas; ++cta) {  // a cluster counts as one
    const device::TileScheduler<PARTITION> list{d, cta};
    device::Work work{};
    for (bool more = list.first(work); more; more = list.next(work)) {
      expect(work.tile >= 0 && work.tile < tiles, "a tile exists");
      expect(work.k_begin >= 0 && work.k_begin < work.k_end && work.k_end <= d.k_blocks,
             "k-blocks are within the tile");
      for (int k = work.k_begin; k < work.k_end; ++k)
        expect(done[std::size_t(std::int64_t(work.tile) * d.k_blocks + k)]++ == 0, "a k-block is done once");
      if (work.peers == 1) continue;
      expect(work.tile < device::split_tile_count(PARTITION, d), "a split tile has a counter");
      const auto slot = device::slot_of<PARTITION>(d, work.tile, work.peer);
      expect(slot >= 0 && slot < device::slot_count(PARTITION, d), "a slot lies in the workspace");
    }
  }
  for (const std::uint8_t count : done) expect(count == 1, "every k-block is done");
}

void check_launch(const NormalProblem& p, const KernelConfig& c, const RatedDevice& device) {
  const LaunchShape shape = launch_shape(p, c);
  expect((shape.grid == 0) == (device::tile_count(shape.decomposition) == 0), "nothing to write, nothing to launch");
  expect(shape.grid >= 0 && shape.decomposition.k_blocks >= 1, "a grid and k-blocks");
  expect(shape.grid == shape.decomposition.ctas * shape.cluster, "a grid of whole clusters");
  expect(shape.threads >= 32 && shape.threads <= 1024, "a block has 32 to 1024 threads");
  expect(shape.smem_bytes <= device.smem_per_block, "a block fits the shared memory");
  expect(shape.counters >= 0 && shape.counters <= max_counters, "the counters fit their block");
  expect((shape.counters == 0) == (shape.partial_bytes == 0), "partial tiles are counted");
  const double us = predict_us(c, p, RatedDevice(device));
  expect(us > 0 && std::isfinite(us), "a predicted time is one");
  expect(parse_kernel_config(to_string(c)) == c, "a legal configuration parses back");

  if (shape.grid > 512 || std::int64_t(device::tile_count(shape.decomposition)) * shape.decomposition.k_blocks > 4096)
    return;
  switch (partition_of(c)) {
    case device::Partition::one_tile:
      return check_work<device::Partition::one_tile>(shape);
    case device::Partition::whole_tiles:
      return check_work<device::Partition::whole_tiles>(shape);
    case device::Partition::split_k:
      return check_work<device::Partition::split_k>(shape);
    case device::Partition::stream_k:
      return check_work<device::Partition::stream_k>(shape);
  }
}

void check_operands(fuzz::Bytes& input, const NormalProblem& p) {
  Operands operands;
  const auto pointer = [&input] { return reinterpret_cast<void*>(input.take<std::uintptr_t>()); };
  operands.a = pointer();
  operands.b = pointer();
  operands.c = pointer();
  operands.d = pointer();
  operands.bias = pointer();
  operands.workspace = pointer();
  operands.workspace_bytes = input.take<std::size_t>();
  try {
    const NormalProblem with = with_operands(p, operands);
    expect(equal(normalise(with), with), "a problem with operands stays normal");
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::invalid_operand, "the error is about an operand");
    expect(!error.problem().empty(), "the error names its problem");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes input(data, size);
  const auto what = input.take<std::uint8_t>();
  const RatedDevice& device = device_from(input);
  const KernelConfig config = config_from(input);
  const Problem asked = problem_from(input);
  expect(!to_string(asked).empty(), "any problem prints");
  expect(!to_string(config).empty(), "any configuration prints");
  hash_value(asked);
  hash_value(config);
  expect(equal(asked, asked), "a problem equals itself");

  NormalProblem p;
  try {
    p = normalise(asked);
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::invalid_problem, "the error is about the problem");
    return 0;
  }
  expect(equal(normalise(p), p) && hash_value(normalise(p)) == hash_value(p), "a normalised problem stays as it is");
  const NormalProblem shape = shape_of(p);
  expect(equal(shape_of(shape), shape), "the shape of a shape is itself");
  expect(minimum_bytes(p) >= 0 && floor_us(p) > 0, "a problem takes time");
  if (why_illegal(config, p, device).empty()) check_launch(p, config, device);
  if (what < 2) {  // slow
    const auto ranked = rank(p, RatedDevice(device), 3);
    const KernelConfig smallest{
        .block_m = 32, .block_n = 32, .block_k = 128 / int(size_of(p.a.type)), .stages = 2, .warps = 2};
    expect(!ranked.empty() || !why_illegal(smallest, p, device).empty(), "what can run has a configuration");
    for (const RankedConfig& choice : ranked) {
      expect(why_illegal(choice.config, p, device).empty(), "what is ranked is legal");
      check_launch(p, choice.config, device);
    }
  }
  check_operands(input, p);
  return 0;
}
