#include "kernels/early_start.hpp"

#include <algorithm>

#include "util/integers.hpp"

namespace jitgemm {
namespace {

// Of the slots that stay empty while the last blocks run, what costs nothing; and what each one more adds to the time
// that memory takes (tools/results/NOTES.md, 54).
constexpr double harmless_idle = 0.15, time_of_idle = 0.7;
constexpr std::int64_t most_waves = 2;  // beyond, blocks come one by one anyway

}  // namespace

EarlyStart early_start_of(std::int64_t blocks, std::int64_t slots, double memory_us) {
  const std::int64_t waves = ceil_div(blocks, slots);
  if (blocks == 0 || waves > most_waves) return {};
  const double idle = 1 - double(blocks) / double(waves * slots);
  const double lost_us = time_of_idle * std::max(0.0, idle - harmless_idle) * memory_us;
  const bool wants_empty_gpu = lost_us > late_start_us;
  return {wants_empty_gpu, wants_empty_gpu && 2 * blocks > slots};
}

}  // namespace jitgemm
