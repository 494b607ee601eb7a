#include "plan/sm90/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/groups.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "geometry_sm90.cuh"
#include "kernels/early_start.hpp"
#include "kernels/sm90/residence.hpp"
#include "plan/hardware.hpp"
#include "plan/sm90/candidates.hpp"

namespace jitgemm {
namespace {

// Of 9000 candidates of 227 shapes (tools/results/NOTES.md, 26). One consumer at a time hands stages back, so blocks of
// a cluster that change consumers at different times wait for each other: for each doubling of the cluster above 2.
constexpr double drift_of_ping_pong = 0.03;
constexpr double exposed_epilogue = 0.8;  // of each of a persistent CTA's tiles but the last

// No source is known, but for the first one's effect (tools/results/NOTES.md, 24).
constexpr double cold_doublings = 3;       // of the clusters that ask for a row at once, which cost it nothing more
constexpr double stages_in_use = 0.5;      // which hide nothing of a load's latency
constexpr double epilogues_at_once = 1.5;  // of two blocks on an SM

// Clocks more that a k-block's products take where a tile's columns lie in two blocks of scales, at one of several
// places, for each step of columns behind the second whose block is chosen anew (tools/results/NOTES.md, 49: 192 and 96
// columns have three such steps, 112 seven).
constexpr double straddling_clocks = 30;
// And what they take where each column has scales of its own, as with swapped operands those that are A's rows: two
// products for each sum instead of one (tools/results/NOTES.md, 41).
constexpr double scales_of_columns = 1.6;
constexpr int scale_columns = 128;

// What HopperRates::epilogue_us is of.
constexpr double usual_accumulators = 128 * 32;  // of a warp
constexpr int line_bytes = 128;                  // of the L2: rows that do not start on one take two requests
constexpr double shared_line = 0.4;              // of D, stored by two tiles in parts, over one's share of its bytes
constexpr int box_columns = 64;                  // of an N-major B, the last one whole

// A wgmma has 64 rows and 32 bytes of k, so that a k-block takes four. Its products take a clock for two columns; it
// reads 128 bytes of shared memory a clock, in 16 clocks its A, and in one four columns of B.
constexpr double wgmma_rows = 64, wgmmas_of_step = 4;
constexpr double columns_a_clock = 2, a_clocks = 16, b_columns_a_clock = 4;

// Of a row of A or B in a k-block; what an SM takes into its shared memory (tools/results/NOTES.md, 13).
constexpr double row_bytes_of_step = 128, ingest_bytes_a_clock = 64;

}  // namespace

CostModelSm90::CostModelSm90(const KernelProblem& p, const RatedDevice& device)
    : problem_(p),
      device_(device),
      rates_(device.rates.of<HopperRates>()),
      b_k_major_(p.b.layout == Layout::column_major),
      promoted_(p.accumulation == Accumulation::promoted),
      has_early_start_(has_early_start(device, p)),
      sharing_(std::log2(rates_.shared_row)),
      us_per_clock_(1 / rates_.clocks_us),
      element_(double(size_of(p.a.type))),
      d_bytes_(epilogue_bytes_per_sum(p)),
      part_element_(double(size_of(accumulator_of(p)))) {
  for (int size = 1; size < int(usable_sms_.size()); ++size) usable_sms_[std::size_t(size)] = usable_sms(size, device);
  const auto row_us = [&](std::int64_t ld) {
    return 1e-3 * (ld * int(element_) % line_bytes == 0 ? rates_.row_ns : rates_.straddling_row_ns);
  };
  epilogue_us_ = (p.d.alignment == 16 ? rates_.epilogue_us : rates_.unaligned_epilogue_us) / usual_accumulators;
  row_us_a_ = row_us(p.a.ld);
  row_us_b_ = row_us(p.b.ld);
  flop_us_ = 1 / (rates_.power_flops_us * data_sheet_rate(p.a.type));
  memory_us_ = minimum_bytes(p) / rates_.memory_bytes_us;
  operand_bytes_ = (double(p.m) + double(p.n)) * double(p.k) * element_;
}

double CostModelSm90::contention(double clusters) const {
  const double doublings = std::log2(clusters);
  return std::exp2(sharing_ * doublings) * (1 + rates_.hot_row * std::max(0., doublings - cold_doublings));
}

CostModelSm90::Launch CostModelSm90::launch_of(const KernelConfig& c, const TileCounts& counts) const {
  Launch launch{.config = c, .cluster_tiles = counts, .cluster = cluster_size_of(c)};
  const std::int64_t grid = quotient(c.grid, launch.cluster);
  launch.dealing = deal_out(c, counts, grid > 0 ? grid : counts.all * c.splits);
  launch.usable = usable_sms_[std::size_t(launch.cluster)];
  launch.resident = may_share_sm(launch.cluster) && two_fit(c, problem_, device_) ? 2 : 1;
  launch.tiles = counts.all * c.cluster_m * c.cluster_n;
  launch.rows = c.block_m;
  launch.columns = c.block_n;
  if (narrows(c, problem_)) {
    const double tiles = expected_tile_rows(problem_.n, c.block_n);
    launch.columns = std::min(launch.columns, double(problem_.n) / tiles + device::width_step / 2.);
  }
  launch.multiplied_rows = launch.rows;
  if (has_groups_of_rows(problem_) && !c.swap_ab) {  // consumers pass, and multiply half, where a group has no more
    const double multiplied = wgmma_rows * expected_tile_rows(problem_.m, std::int64_t(wgmma_rows)),
                 tiles = expected_tile_rows(problem_.m, group_tile_rows(c)) * c.cluster_m;
    launch.multiplied_rows = std::min(launch.rows, multiplied / tiles);
  }
  launch.elements = launch.multiplied_rows * launch.columns;
  const int fold = pairing_of(problem_) != Pairing::none && !c.swap_ab ? 2 : 1;
  launch.loaded_columns = b_k_major_ ? device::sm90::part_of_rows(c.block_n, c.cluster_m, fold) * c.cluster_m
                                     : double(round_up(c.block_n, box_columns));
  if (narrows(c, problem_)) {
    const int box = device::sm90::geometry(parameters_of(c, problem_)).b_box;
    launch.loaded_columns = std::min(launch.loaded_columns, launch.columns + (box - device::width_step) / 2.);
  }
  return launch;
}

CostModelSm90::Step CostModelSm90::step_of(const Launch& l) const {
  const KernelConfig& c = l.config;
  const double n = l.columns, loaded = l.multiplied_rows + l.loaded_columns;
  Step step;
  step.ingest_clocks = row_bytes_of_step / ingest_bytes_a_clock * loaded * rates_.ingest;

  // Clusters of a wave that share rows of A, and of B.
  const double clusters =
      double(std::min<std::int64_t>(l.cluster_tiles.all * c.cluster_k * l.dealing.splits, l.usable / l.cluster));
  const double rows_of_wave = double(std::min<std::int64_t>(l.cluster_tiles.m, std::max(1, c.group_m)));
  const double columns_of_wave = std::max(1., std::min(double(l.cluster_tiles.n), clusters / rows_of_wave));
  step.rows_us = l.multiplied_rows / c.cluster_n * row_us_a_ * contention(columns_of_wave) +
                 l.loaded_columns / c.cluster_m * row_us_b_ * contention(rows_of_wave);
  if (c.ping_pong) step.rows_us *= rates_.ping_pong_row;

  // Loads write to the shared memory that products read.
  const double wgmmas = l.multiplied_rows / wgmma_rows * wgmmas_of_step;
  step.product_clocks = std::max(wgmmas * n / columns_a_clock,
                                 wgmmas * (a_clocks + n / b_columns_a_clock) + rates_.shared_writes * loaded);
  // Of halves, as many columns lie side by side as D has.
  const int adjacent = pairing_of(problem_) == Pairing::halves && !c.swap_ab ? c.block_n / 2 : c.block_n;
  if (problem_.b.scaling == Scaling::block_128x128 && scale_columns % adjacent != 0 && adjacent % scale_columns != 0)
    step.product_clocks += straddling_clocks * (adjacent / std::gcd(adjacent, scale_columns) - 2);
  if (problem_.b.scaling == Scaling::block_1x128) step.product_clocks *= scales_of_columns;
  // A warpgroup that multiplies alone leaves the tensor cores idle while it promotes what it has multiplied last.
  if (promoted_ && (c.ping_pong || c.warps == 4)) {
    const device::sm90::Geometry geometry = device::sm90::geometry(parameters_of(c, problem_));
    const double last = geometry.rows_promoted > 64 ? wgmma_rows / geometry.consumer_rows : 1;
    step.promotion_clocks = l.elements * last / rates_.promotions;
  }
  step.latency_us = rates_.latency_us / (c.stages - stages_in_use);
  if (l.cluster > 1) step.slowdown *= rates_.clusters;
  if (c.cluster_m == 2 && c.cluster_n == 2) step.slowdown *= rates_.square_clusters;
  if (c.ping_pong && l.cluster > 2) step.slowdown *= 1 + drift_of_ping_pong * std::log2(l.cluster / 2);
  return step;
}

double CostModelSm90::step_us(const Step& step, double active, int share) const {
  const double into_sm = step.ingest_clocks * share * us_per_clock_, l2 = step.rows_us * active;
  const double promotion = share == 1 ? step.promotion_clocks : 0;
  const double multiply = (step.product_clocks * share + promotion) * us_per_clock_;
  const double longest = std::max({into_sm, l2, multiply, step.latency_us});
  return step.slowdown * (longest + rates_.unhidden * std::min(into_sm, l2) / 2);
}

double CostModelSm90::epilogue_us(const Launch& l) const {
  const double stored = l.elements / l.config.cluster_k;  // by one block
  const int warps = l.config.ping_pong ? 4 : l.config.warps;
  return epilogue_us_ * stored / warps +
         shared_lines(l.config) * stored * d_bytes_ * us_per_clock_ / rates_.store_bytes_clock;
}

double CostModelSm90::shared_lines(const KernelConfig& c) const {
  const int fold = pairing_of(problem_) == Pairing::none ? 1 : 2;
  const int row_bytes = (c.swap_ab ? c.block_m : c.block_n) / fold * int(size_of(problem_.d.type));
  return 1 + shared_line * (line_bytes - std::gcd(row_bytes, line_bytes)) / row_bytes;
}

/// Blocks that compute a tile, or a part of one, each: as many waves as there are blocks for the SMs.
void CostModelSm90::add_waves(const Launch& l, PredictedTime& time) const {
  const KernelConfig& c = l.config;
  const Step step = step_of(l);
  const std::int64_t splits = l.dealing.splits;
  const double steps = double(ceil_div(ceil_div(l.cluster_tiles.k_blocks, splits), c.cluster_k));
  const std::int64_t blocks = l.tiles * c.cluster_k * splits, slots = std::int64_t(l.usable) * l.resident;
  const std::int64_t full = quotient(blocks, slots), rest = blocks - full * slots;
  time.main_loop_us = double(full) * steps * step_us(step, double(slots), l.resident);
  if (rest > 0) time.main_loop_us += steps * step_us(step, double(rest), rest <= l.usable ? 1 : l.resident);

  const double waves = double(full + (rest > 0));
  time.epilogue_us =
      waves * epilogue_us(l) / (l.resident == 1 ? 1 : epilogues_at_once) + (waves - 1) * rates_.wave_us / l.resident;
  if (blocks > l.usable && l.resident == 2) time.epilogue_us += rates_.second_block_us;

  if (c.cluster_k > 1) {
    time.fixup_us = rates_.cluster_sum_us + 2 * part_bytes(l) * (c.cluster_k - 1) / c.cluster_k * us_per_clock_ /
                                                rates_.cluster_sum_bytes_clock;
  }
  if (splits > 1)
    time.fixup_us += rates_.arrival_us + double(1 + splits) * part_bytes(l) / c.cluster_k / rates_.part_bytes_us;
}

/// CTAs that compute a tile after the other.
void CostModelSm90::add_rounds(const Launch& l, PredictedTime& time) const {
  const Step step = step_of(l);
  const std::int64_t grid = l.dealing.ctas * l.cluster, full = quotient(l.tiles, grid), rest = l.tiles - full * grid;
  time.main_loop_us = double(l.cluster_tiles.k_blocks) *
                      (double(full) * step_us(step, double(grid), 1) + (rest > 0 ? step_us(step, double(rest), 1) : 0));

  const double epilogue = epilogue_us(l);
  const double rounds = double(full + (rest > 0)), in_turn = time.main_loop_us / rounds + epilogue;
  // Two consumers in turn: each one's epilogue behind the other's products, if those take as long. Otherwise the
  // next tile's loads run beside it.
  time.epilogue_us = l.config.ping_pong ? std::max(epilogue, (rounds + 1) / 2 * in_turn - time.main_loop_us)
                                        : (1 + (rounds - 1) * exposed_epilogue) * epilogue;
}

/// Stream-K's CTAs: a range of the k-blocks of the tiles that are split, then whole tiles.
void CostModelSm90::add_ranges(const Launch& l, PredictedTime& time) const {
  const Step step = step_of(l);
  const KernelConfig& c = l.config;
  const std::int64_t split = l.dealing.stream_k_tiles, ctas = l.dealing.ctas, k_blocks = l.cluster_tiles.k_blocks;
  const std::int64_t range = ceil_div(split * k_blocks, ctas), whole = ceil_div(l.cluster_tiles.all - split, ctas);
  time.main_loop_us = double(range + whole * k_blocks) * step_us(step, double(ctas * l.cluster), 1);
  // Ranges walk through k out of step and share nothing in the L2 (tools/results/NOTES.md, 5).
  if (operand_bytes_ > l2_for_operands * double(device_.l2_bytes)) {
    const double read =
        double(split) * c.cluster_m * c.cluster_n * (l.rows + l.columns) * double(k_blocks) * row_bytes_of_step;
    time.main_loop_us += std::max(0.0, read - operand_bytes_) / rates_.memory_bytes_us;
  }
  time.epilogue_us = double(whole + range / k_blocks + 1) * epilogue_us(l);
  const double peers = double(std::min(ctas, ceil_div(k_blocks, std::max<std::int64_t>(1, range)) + 1));
  time.fixup_us = rates_.arrival_us + (1 + peers) * part_bytes(l) / rates_.part_bytes_us;
}

double CostModelSm90::together_us(const PredictedTime& time) const {
  // What a CTA does between its tiles costs nothing where the power limit holds it back anyway.
  const double ctas_us = time.main_loop_us + time.epilogue_us + time.fixup_us;
  const double all = ctas_us + time.memory_us + time.power_us;
  const double longest = std::max({ctas_us, time.memory_us, time.power_us});
  return longest + rates_.unhidden * (all - longest) / 2;
}

PredictedTime CostModelSm90::time(const KernelConfig& c, const TileCounts& counts) const {
  PredictedTime time;
  time.us = time.launch_us = rates_.launch_us;
  if (counts.all == 0) return time;
  const Launch launch = launch_of(c, counts);
  switch (c.schedule) {
    case Schedule::data_parallel:
    case Schedule::split_k:
      add_waves(launch, time);
      break;
    case Schedule::persistent:
      launch.dealing.ctas == counts.all ? add_waves(launch, time) : add_rounds(launch, time);
      break;
    case Schedule::stream_k:
    case Schedule::stream_k_one_tile:
    case Schedule::stream_k_two_tile:
      add_ranges(launch, time);
      break;
  }
  time.power_us = 2.0 * double(launch.tiles) * launch.elements * double(counts.k_blocks) * c.block_k * flop_us_;
  time.memory_us = memory_us_;
  time.us += together_us(time);
  const EarlyStart start = early_start_of({.blocks = launch.dealing.ctas * launch.cluster,
                                           .slots = std::int64_t(launch.usable) * launch.resident,
                                           .parts = launch.dealing.parts * launch.cluster},
                                          time.memory_us);
  if (start.holds_next_back && has_early_start_) time.us += late_start_us;
  return time;
}

double CostModelSm90::tile_us(const KernelConfig& tile, const ConstraintFilter* filter) const {
  const TileCounts counts = expected_tile_counts(problem_, tile);
  const auto us_if_allowed = [&](const KernelConfig& config) {
    return filter && !filter->allows(config) ? std::numeric_limits<double>::infinity() : time(config, counts).us;
  };
  KernelConfig c = tile;
  const int size = cluster_size_of(c);
  const std::int64_t slots = usable_sms_[std::size_t(size)], blocks = counts.all * size;
  const bool fills = blocks > slots;
  if ((fills && c.cluster_k == 1) || has_groups(problem_)) {
    c.schedule = Schedule::persistent;
    c.grid = int(slots);
  }
  double least = us_if_allowed(c);
  if (c.ping_pong || has_groups(problem_)) return least;
  if (!fills && 2 * blocks <= slots) {
    c.splits = splits_of(counts.k_blocks, c.cluster_k, quotient(slots, blocks));
    if (c.splits == 1) return least;
    c.schedule = Schedule::split_k;
    least = std::min(least, us_if_allowed(c));
  } else if (c.cluster_k == 1 && fills && may_share_sm(size) &&
             device::sm90::geometry(parameters_of(c, problem_)).ctas_per_sm == 2) {
    c = tile;
    while (c.stages > fewest_stages && !two_fit(c, problem_, device_)) --c.stages;
    least = std::min(least, us_if_allowed(c));
  }
  return least;
}

}  // namespace jitgemm
