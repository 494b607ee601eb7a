#include "kernels/early_start.hpp"

#include "util/integers.hpp"

namespace jitgemm {
namespace {

// Of the slots that stay empty while the last blocks run, what costs nothing behind a launch of the same kind, and
// behind any other, whose blocks end at any time; and what each one more adds to the time that memory takes
// (tools/results/NOTES.md, 54).
constexpr double harmless_idle = 0.15, harmless_idle_behind_others = 0.1, time_of_idle = 0.7;
constexpr std::int64_t most_waves = 2;  // beyond, blocks come one by one anyway

}  // namespace

EarlyStart early_start_of(std::int64_t blocks, std::int64_t slots, double memory_us) {
  const std::int64_t waves = ceil_div(blocks, slots);
  if (blocks == 0 || waves > most_waves) return {};
  const double idle = 1 - double(blocks) / double(waves * slots);
  const auto loses = [&](double harmless) { return time_of_idle * (idle - harmless) * memory_us > late_start_us; };
  return {.wants_empty_gpu = loses(harmless_idle_behind_others),
          .holds_next_back = loses(harmless_idle) && 2 * blocks > slots};
}

}  // namespace jitgemm
