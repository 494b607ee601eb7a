#include "kernels/early_start.hpp"

#include "core/groups.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "util/integers.hpp"

namespace jitgemm {
namespace {

// Of the slots that stay empty while the last blocks run, what costs nothing behind a launch of the same kind, and
// behind any other, whose blocks end at any time; and what each one more adds to the time that memory takes
// (tools/results/NOTES.md, 54).
constexpr double harmless_idle = 0.15, harmless_idle_behind_others = 0.1, time_of_idle = 0.7;
constexpr std::int64_t most_waves = 2;  // beyond, blocks come one by one anyway

// The same of the last round of blocks that take several tiles in turn, behind others: of that round's time. So few
// blocks as would have most of the GPU for themselves sit well anywhere (tools/results/NOTES.md, 56).
constexpr double harmless_idle_of_round = 0.2, time_of_idle_in_round = 0.29, few_of_round = 0.25;

// Of 16-bit operands, what an H200's tensor cores multiply and add while its memory gives a byte: 800e12 / 4.2e12.
constexpr double flops_a_byte = 190;

/// What the last round of tiles adds to the time of memory where its blocks sit as they come.
double uneven_round_us(const BlocksInTurn& grid, double memory_us) {
  const std::int64_t rounds = ceil_div(grid.parts, grid.blocks);
  const double busy = double(grid.parts - (rounds - 1) * grid.blocks) / double(grid.slots);
  if (busy <= few_of_round) return 0;
  return time_of_idle_in_round * (1 - busy - harmless_idle_of_round) * memory_us / double(rounds);
}

}  // namespace

EarlyStart early_start_of(const BlocksInTurn& grid, double memory_us) {
  if (grid.blocks == 0) return {};
  if (grid.parts > grid.blocks) return {.wants_empty_gpu = uneven_round_us(grid, memory_us) > late_start_us};
  const std::int64_t waves = ceil_div(grid.blocks, grid.slots);
  if (waves > most_waves) return {};
  const double idle = 1 - double(grid.blocks) / double(waves * grid.slots);
  const auto loses = [&](double harmless) { return time_of_idle * (idle - harmless) * memory_us > late_start_us; };
  return {.wants_empty_gpu = loses(harmless_idle_behind_others),
          .holds_next_back = loses(harmless_idle) && 2 * grid.blocks > grid.slots};
}

bool has_early_start(const DeviceInfo& device, const Problem& problem) {
  return device.launches_dependents() && !has_groups(problem) &&
         flops(problem) < flops_a_byte * 16 / bits_of(problem.a.type) * minimum_bytes(problem);
}

}  // namespace jitgemm
