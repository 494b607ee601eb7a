#include "plan/cost_model_sm90.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/kernel_config.hpp"
#include "core/kernel_interface.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "plan/candidates_sm90.hpp"
#include "util/integers.hpp"

namespace jitgemm {
namespace {

// Units: microseconds; bytes and operations a microsecond; clocks of an SM. Fitted to 3000 measured candidates of 129
// shapes on an H200: aligned, unaligned, decoding, fp8 (tools/results/NOTES.md, 22); other devices scale with their
// SMs.
struct Model {
  double launch_us = 1.65;  // to the first product, and from the last store to the end
  double clocks = 1.7e3;    // a microsecond
  double ingest = 0.847;    // of the clocks that 64 bytes a clock take into an SM's shared memory
  // 128 bytes of an operand from the L2, in one line or two, all SMs together.
  double row_ns = 0.0090, straddling_row_ns = 0.0142;
  double latency_us = 0.764;   // of a load, hidden by the stages
  double promotions = 33.6;    // of partial sums, a clock
  double epilogue_us = 0.249;  // of 128 accumulators a thread
  double store_bytes_clock = 23.1;
  double cluster_sum_us = 0.332, cluster_sum_bytes_clock = 12.8;
  double arrival_us = 1.29, part_bytes_us = 2.19e+04;  // of a tile cut across programs
  double memory_bytes_us = 4.52e6;
  double peak_flops_us = 800e6;  // the power limit
  double unhidden = 0.364;       // of what runs beside the longest
  double wave_us = 1.9;          // between two waves of blocks
};
constexpr Model model;
// A division takes as long as ten products, and this is what ranking waits for.
constexpr double clock_us = 1 / model.clocks;

/// What of device::Decomposition the model is about.
struct Cut {
  std::int64_t tiles, k_steps, programs, stream_k_tiles = 0, splits = 1;
};

Cut cut_of(const KernelConfig& c, const Problem& p) {
  Cut cut;
  cut.tiles = ceil_div(p.m, c.block_m * c.cluster_m) * ceil_div(p.n, c.block_n * c.cluster_n) * p.batch;
  cut.k_steps = reads_ab(p) ? ceil_div(p.k, c.block_k) : 1;
  if (c.schedule == Schedule::split_k) cut.splits = std::min<std::int64_t>(c.splits, cut.k_steps);
  const std::int64_t grid = quotient(c.grid, cluster_size_of(c));
  cut.programs = grid > 0 ? grid : cut.tiles * cut.splits;
  switch (c.schedule) {
    case Schedule::stream_k:
      cut.stream_k_tiles = cut.tiles;
      break;
    case Schedule::stream_k_one_tile:
      cut.stream_k_tiles = device::one_tile_stream_k_tiles(int(cut.tiles), int(cut.programs));
      break;
    case Schedule::stream_k_two_tile:
      cut.stream_k_tiles = device::two_tile_stream_k_tiles(int(cut.tiles), int(cut.programs));
      break;
    default:
      cut.programs = std::min(cut.programs, cut.tiles * cut.splits);
  }
  return cut;
}

/// Whether shared memory holds two blocks of an SM.
bool two_fit(const KernelConfig& c, const Problem& p, const DeviceInfo& device) {
  return 2 * (smem_bytes_of_kernel(c, p) + 1024) <= device.smem_per_sm;
}

}  // namespace

double predict_sm90_us(const KernelConfig& c, const Problem& p, const DeviceInfo& device) {
  const Cut d = cut_of(c, p);
  if (d.tiles == 0) return model.launch_us;

  const int size = cluster_size_of(c), sms = device.sm_count;
  const double element = double(size_of(p.a));
  const std::int64_t tiles = d.tiles * c.cluster_m * c.cluster_n;  // of one block
  const double m = c.block_m, n = c.block_n, tile = m * n;
  const bool b_k_major = p.layout_b == Layout::column_major;
  const double loaded_n = b_k_major ? n : double(ceil_div(c.block_n, 64) * 64);
  const int resident = blocks_per_sm_of(c, p) == 2 && two_fit(c, p, device) ? 2 : 1;
  const int usable = usable_sms(size, device);

  // One k-step of the blocks that are active.
  const double ingest = 2 * (m + loaded_n) * model.ingest;
  const auto row_us = [&](std::int64_t ld) {
    return 1e-3 * (ld * int(element) % 128 == 0 ? model.row_ns : model.straddling_row_ns);
  };
  const double rows_us = m / c.cluster_n * row_us(p.lda) + loaded_n / c.cluster_m * row_us(p.ldb);
  // A warpgroup that multiplies alone leaves the tensor cores idle while it promotes.
  const double products = m / 64 * 4 * std::max(n / 2, 16 + n / 4);  // clocks
  const bool promotes_alone = p.accumulation == Accumulation::promoted && (c.ping_pong || c.warps == 4);
  const double latency = model.latency_us / (c.stages - 0.5);
  const auto step_us = [&](double active, int share) {
    const double into_sm = ingest * share * clock_us, l2 = rows_us * active;
    const double promotion = promotes_alone && share == 1 ? tile * (1 / model.promotions) : 0;
    const double multiply = (products * share + promotion) * clock_us;
    const double longest = std::max({into_sm, l2, multiply, latency});
    return longest + model.unhidden * std::min(into_sm, l2) / 2;
  };

  const double stored = tile / c.cluster_k;  // by one block
  const double d_bytes = stored * double(size_of(p.d)) * (reads_c(p) ? 2 : 1) * (p.align_d == 16 ? 1 : 3);
  const int epilogue_warps = c.ping_pong ? 4 : c.warps;
  const double epilogue =
      model.epilogue_us / (128 * 32) * stored / epilogue_warps + d_bytes * (clock_us / model.store_bytes_clock);
  const double part_bytes = tile * double(size_of(accumulator_of(p)));

  double body = 0, epilogues = 0, fixup = 0;
  switch (c.schedule) {
    case Schedule::data_parallel:
    case Schedule::split_k: {
      const double steps = double(ceil_div(ceil_div(d.k_steps, d.splits), c.cluster_k));
      const std::int64_t blocks = tiles * c.cluster_k * d.splits, slots = std::int64_t(usable) * resident;
      const std::int64_t full = quotient(blocks, slots), rest = blocks - full * slots;
      body = double(full) * steps * step_us(double(slots), resident);
      if (rest > 0) body += steps * step_us(double(rest), rest <= usable ? 1 : resident);
      const double waves = double(full + (rest > 0));
      epilogues = waves * epilogue / (resident == 1 ? 1 : 1.5) + (waves - 1) * model.wave_us / resident;
      if (c.cluster_k > 1)
        fixup = model.cluster_sum_us +
                2 * part_bytes * (c.cluster_k - 1) / c.cluster_k * (clock_us / model.cluster_sum_bytes_clock);
      if (d.splits > 1) fixup += model.arrival_us + double(1 + d.splits) * part_bytes / model.part_bytes_us;
      break;
    }
    case Schedule::persistent: {
      const std::int64_t grid = d.programs * size, full = quotient(tiles, grid), rest = tiles - full * grid;
      body = double(d.k_steps) * (double(full) * step_us(double(grid), 1) + (rest > 0 ? step_us(double(rest), 1) : 0));
      const double rounds = double(full + (rest > 0));
      epilogues = c.ping_pong ? epilogue : rounds * epilogue;  // all but the last behind the other consumer's products
      break;
    }
    default: {
      const std::int64_t cut = d.stream_k_tiles, k_steps = d.k_steps;
      const std::int64_t range = ceil_div(cut * k_steps, d.programs), whole = ceil_div(d.tiles - cut, d.programs);
      body = double(range + whole * k_steps) * step_us(double(d.programs * size), 1);
      const double peers = double(std::min(d.programs, ceil_div(k_steps, std::max<std::int64_t>(1, range)) + 1));
      epilogues = double(whole + range / k_steps + 1) * epilogue;
      fixup = model.arrival_us + (1 + peers) * part_bytes / model.part_bytes_us;
      // Ranges walk through k out of step and share nothing in the L2 (tools/results/NOTES.md, 5).
      const double once = (double(p.m) + double(p.n)) * double(p.k) * element;
      if (once > 0.7 * double(device.l2_bytes))
        body += std::max(0.0, double(cut) * c.cluster_m * c.cluster_n * (m + n) * double(k_steps) * 128 - once) / 4e6;
    }
  }

  const double rate = size_of(p.a) == 1 ? 2 : p.a == tf32 ? 0.5 : 1;
  const double flops = 2.0 * double(tiles) * tile * double(d.k_steps) * c.block_k;
  const double power = flops / (model.peak_flops_us * rate * sms / 132);
  const double memory = minimum_bytes(p) * (1 / model.memory_bytes_us);
  // What a program does between its tiles costs nothing where the power limit holds it back anyway.
  const double programs_us = body + epilogues + fixup, longest = std::max({programs_us, memory, power});
  const double main = longest + model.unhidden * (programs_us + memory + power - longest) / 2;
  return model.launch_us + main;
}

double predict_tile_sm90_us(const KernelConfig& tile, const Problem& p, const DeviceInfo& device,
                            const ConstraintFilter* filter) {
  const auto predict_us = [&](const KernelConfig& config) {
    return filter && !filter->allows(config) ? std::numeric_limits<double>::infinity()
                                             : predict_sm90_us(config, p, device);
  };
  KernelConfig c = tile;
  const std::int64_t slots = usable_sms(cluster_size_of(c), device);
  const Cut whole = cut_of(c, p);
  const std::int64_t blocks = whole.tiles * cluster_size_of(c);
  const bool fills = blocks > slots;
  if (fills && c.cluster_k == 1) {
    c.schedule = Schedule::persistent;
    c.grid = int(slots);
  }
  double us = predict_us(c);
  if (c.cluster_k > 1 || c.ping_pong) return us;
  if (!fills && 2 * blocks <= slots) {
    c.schedule = Schedule::split_k;
    c.splits = int(std::min<std::int64_t>(8, slots / blocks));
    us = std::min(us, predict_us(c));
  } else if (fills && blocks_per_sm_of(c, p) == 2) {
    c = tile;
    while (c.stages > 3 && !two_fit(c, p, device)) --c.stages;
    us = std::min(us, predict_us(c));
  }
  return us;
}

}  // namespace jitgemm
