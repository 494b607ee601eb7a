#include "plan/cost_model_sm90.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/kernel_interface.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "kernels/parameters.hpp"
#include "plan/candidates_sm90.hpp"
#include "util/integers.hpp"

namespace jitgemm {
namespace {

// Of 9000 candidates of 227 shapes (tools/results/NOTES.md, 26). One consumer at a time hands stages back, so blocks of
// a cluster that change consumers at different times wait for each other: for each doubling of the cluster above 2.
constexpr double drift_of_ping_pong = 0.03;
constexpr double exposed_epilogue = 0.8;  // of each of a persistent program's tiles but the last

}  // namespace

CostModelSm90::CostModelSm90(const Problem& p, const RatedDevice& device)
    : problem_(p),
      device_(device),
      rates_(device.rates.sm90),
      multiplies_(reads_ab(p)),
      b_k_major_(p.b.layout == Layout::column_major),
      promoted_(p.accumulation == Accumulation::promoted),
      us_per_clock_(1 / rates_.clocks_us),
      element_(double(size_of(p.a.type))),
      d_bytes_(double(size_of(p.d.type)) * (reads_c(p) ? 2 : 1)),
      part_element_(double(size_of(accumulator_of(p)))) {
  for (int size = 1; size < int(usable_sms_.size()); ++size) usable_sms_[std::size_t(size)] = usable_sms(size, device);
  const auto row_us = [&](std::int64_t ld) {
    return 1e-3 * (ld * int(element_) % 128 == 0 ? rates_.row_ns : rates_.straddling_row_ns);
  };
  epilogue_us_ = (p.d.alignment == 16 ? rates_.epilogue_us : rates_.unaligned_epilogue_us) / (128 * 32);
  row_us_a_ = row_us(p.a.ld);
  row_us_b_ = row_us(p.b.ld);
  const double rate = size_of(p.a.type) == 1 ? 2 : p.a.type == tf32 ? 0.5 : 1;
  flop_us_ = 1 / (rates_.power_flops_us * rate);
  memory_us_ = minimum_bytes(p) / rates_.memory_bytes_us;
  operand_bytes_ = (double(p.m) + double(p.n)) * double(p.k) * element_;
}

CostModelSm90::Cut CostModelSm90::tiles_of(const KernelConfig& c) const {
  Cut cut;
  cut.tiles_m = ceil_div(problem_.m, c.block_m * c.cluster_m);
  cut.tiles_n = ceil_div(problem_.n, c.block_n * c.cluster_n);
  cut.tiles = cut.tiles_m * cut.tiles_n * problem_.batch;
  cut.k_steps = multiplies_ ? ceil_div(problem_.k, c.block_k) : 1;
  return cut;
}

void CostModelSm90::deal_out(const KernelConfig& c, Cut& cut) const {
  cut.splits = c.schedule == Schedule::split_k ? std::min<std::int64_t>(c.splits, cut.k_steps) : 1;
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
}

CostModelSm90::Cut CostModelSm90::cut_of(const KernelConfig& c) const {
  Cut cut = tiles_of(c);
  deal_out(c, cut);
  return cut;
}

double CostModelSm90::heat(double clusters) const {
  return clusters <= 8 ? 1 : 1 + rates_.hot_row * std::log2(clusters / 8);
}

bool CostModelSm90::two_fit(const KernelConfig& c) const {
  const device::sm90::Geometry geometry = device::sm90::geometry(parameters_of(c, problem_));
  return geometry.blocks_per_sm == 2 && 2 * (std::size_t(geometry.smem_bytes) + 1024) <= device_.smem_per_sm;
}

PredictedTime CostModelSm90::time(const KernelConfig& c, const Cut& d) const {
  PredictedTime time;
  time.us = time.launch_us = rates_.launch_us;
  if (d.tiles == 0) return time;

  const int size = cluster_size_of(c);
  const std::int64_t tiles = d.tiles * c.cluster_m * c.cluster_n;  // of one block
  const double m = c.block_m, n = c.block_n, tile = m * n;
  const double loaded_n = b_k_major_ ? n : double(ceil_div(c.block_n, 64) * 64);
  const int resident = size < 8 && two_fit(c) ? 2 : 1;
  const int usable = usable_sms_[std::size_t(size)];

  // One k-step of the blocks that are active.
  const double ingest = 2 * (m + loaded_n) * rates_.ingest;
  // Clusters of a wave that share rows of A, and of B.
  const double clusters = double(std::min<std::int64_t>(d.tiles * c.cluster_k * d.splits, usable / size));
  const double rows_of_wave = double(std::min<std::int64_t>(d.tiles_m, std::max(1, c.group_m)));
  const double columns_of_wave = std::max(1., std::min(double(d.tiles_n), clusters / rows_of_wave));
  const double rows_us =
      m / c.cluster_n * row_us_a_ * heat(columns_of_wave) + loaded_n / c.cluster_m * row_us_b_ * heat(rows_of_wave);
  // A warpgroup that multiplies alone leaves the tensor cores idle while it promotes.
  const double products = m / 64 * 4 * std::max(n / 2, 16 + n / 4);  // clocks
  const bool promotes_alone = promoted_ && (c.ping_pong || c.warps == 4);
  const double latency = rates_.latency_us / (c.stages - 0.5);
  const double drift = c.ping_pong && size > 2 ? 1 + drift_of_ping_pong * std::log2(size / 2) : 1;
  const auto step_us = [&](double active, int share) {
    const double into_sm = ingest * share * us_per_clock_, l2 = rows_us * active;
    const double promotion = promotes_alone && share == 1 ? tile / rates_.promotions : 0;
    const double multiply = (products * share + promotion) * us_per_clock_;
    const double longest = std::max({into_sm, l2, multiply, latency});
    return drift * (longest + rates_.unhidden * std::min(into_sm, l2) / 2);
  };

  const double stored = tile / c.cluster_k;  // by one block
  const int epilogue_warps = c.ping_pong ? 4 : c.warps;
  const double epilogue =
      epilogue_us_ * stored / epilogue_warps + stored * d_bytes_ * us_per_clock_ / rates_.store_bytes_clock;
  const double part_bytes = tile * part_element_;

  switch (c.schedule) {
    case Schedule::data_parallel:
    case Schedule::split_k: {
      const double steps = double(ceil_div(ceil_div(d.k_steps, d.splits), c.cluster_k));
      const std::int64_t blocks = tiles * c.cluster_k * d.splits, slots = std::int64_t(usable) * resident;
      const std::int64_t full = quotient(blocks, slots), rest = blocks - full * slots;
      time.main_loop_us = double(full) * steps * step_us(double(slots), resident);
      if (rest > 0) time.main_loop_us += steps * step_us(double(rest), rest <= usable ? 1 : resident);
      const double waves = double(full + (rest > 0));
      time.epilogue_us = waves * epilogue / (resident == 1 ? 1 : 1.5) + (waves - 1) * rates_.wave_us / resident;
      if (blocks > usable && resident == 2) time.epilogue_us += rates_.second_block_us;
      if (c.cluster_k > 1) {
        time.fixup_us = rates_.cluster_sum_us + 2 * part_bytes * (c.cluster_k - 1) / c.cluster_k * us_per_clock_ /
                                                    rates_.cluster_sum_bytes_clock;
      }
      if (d.splits > 1) time.fixup_us += rates_.arrival_us + double(1 + d.splits) * part_bytes / rates_.part_bytes_us;
      break;
    }
    case Schedule::persistent: {
      const std::int64_t grid = d.programs * size, full = quotient(tiles, grid), rest = tiles - full * grid;
      time.main_loop_us =
          double(d.k_steps) * (double(full) * step_us(double(grid), 1) + (rest > 0 ? step_us(double(rest), 1) : 0));
      const double rounds = double(full + (rest > 0)), in_turn = time.main_loop_us / rounds + epilogue;
      // Two consumers in turn: each one's epilogue behind the other's products, if those take as long. Otherwise the
      // next tile's loads run beside it.
      time.epilogue_us = c.ping_pong ? std::max(epilogue, (rounds + 1) / 2 * in_turn - time.main_loop_us)
                                     : (1 + (rounds - 1) * exposed_epilogue) * epilogue;
      break;
    }
    default: {
      const std::int64_t cut = d.stream_k_tiles, k_steps = d.k_steps;
      const std::int64_t range = ceil_div(cut * k_steps, d.programs), whole = ceil_div(d.tiles - cut, d.programs);
      time.main_loop_us = double(range + whole * k_steps) * step_us(double(d.programs * size), 1);
      const double peers = double(std::min(d.programs, ceil_div(k_steps, std::max<std::int64_t>(1, range)) + 1));
      time.epilogue_us = double(whole + range / k_steps + 1) * epilogue;
      time.fixup_us = rates_.arrival_us + (1 + peers) * part_bytes / rates_.part_bytes_us;
      // Ranges walk through k out of step and share nothing in the L2 (tools/results/NOTES.md, 5).
      if (operand_bytes_ > 0.7 * double(device_.l2_bytes)) {
        const double read = double(cut) * c.cluster_m * c.cluster_n * (m + n) * double(k_steps) * 128;
        time.main_loop_us += std::max(0.0, read - operand_bytes_) / rates_.memory_bytes_us;
      }
    }
  }

  time.power_us = 2.0 * double(tiles) * tile * double(d.k_steps) * c.block_k * flop_us_;
  time.memory_us = memory_us_;
  // What a program does between its tiles costs nothing where the power limit holds it back anyway.
  const double programs = time.main_loop_us + time.epilogue_us + time.fixup_us;
  const double all = programs + time.memory_us + time.power_us;
  const double longest = std::max({programs, time.memory_us, time.power_us});
  time.us += longest + rates_.unhidden * (all - longest) / 2;
  return time;
}

double CostModelSm90::tile_us(const KernelConfig& tile, const ConstraintFilter* filter) const {
  Cut cut = tiles_of(tile);
  const auto us_if_allowed = [&](const KernelConfig& config) {
    if (filter && !filter->allows(config)) return std::numeric_limits<double>::infinity();
    deal_out(config, cut);
    return time(config, cut).us;
  };
  KernelConfig c = tile;
  const int size = cluster_size_of(c);
  const std::int64_t slots = usable_sms_[std::size_t(size)], blocks = cut.tiles * size;
  const bool fills = blocks > slots;
  if (fills && c.cluster_k == 1) {
    c.schedule = Schedule::persistent;
    c.grid = int(slots);
  }
  double least = us_if_allowed(c);
  if (c.cluster_k > 1 || c.ping_pong) return least;
  if (!fills && 2 * blocks <= slots) {
    c.schedule = Schedule::split_k;
    c.splits = int(std::min<std::int64_t>(8, quotient(slots, blocks)));
    least = std::min(least, us_if_allowed(c));
  } else if (fills && size < 8 && device::sm90::geometry(parameters_of(c, problem_)).blocks_per_sm == 2) {
    c = tile;
    while (c.stages > 3 && !two_fit(c)) --c.stages;
    least = std::min(least, us_if_allowed(c));
  }
  return least;
}

}  // namespace jitgemm
