#include "core/groups.hpp"
#include "core/out_of_memory.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "jitgemm/plan.hpp"
#include "kernels/packing.hpp"
#include "plan/constraints.hpp"
#include "util/number_text.hpp"

namespace jitgemm {
namespace {

std::string times(std::initializer_list<std::int64_t> factors) {
  std::string text;
  for (std::int64_t factor : factors) text += (text.empty() ? "" : " x ") + std::to_string(factor);
  return text;
}

std::string microseconds(double us) { return fixed_text(us, us < 100 ? 2 : 0) + " us"; }

std::string bytes(std::size_t count) {
  const std::string text = std::to_string(count) + " bytes";
  return count < 1 << 20 ? text : text + " (" + general_text(double(count) / (1 << 20), 3) + " MiB)";
}

std::string breakdown(const PredictedTime& time) {
  std::string text = "launch " + microseconds(time.launch_us);
  const auto add = [&text](const char* what, double us) {
    if (us > 0) text += std::string(", ") + what + " " + microseconds(us);
  };
  add("packing", time.packing_us);
  add("main loop", time.main_loop_us);
  add("epilogue", time.epilogue_us);
  add("fix-up", time.fixup_us);
  text += "; beside these";
  add("memory", time.memory_us);
  add("power", time.power_us);
  return text.replace(text.find("these,"), 6, "these");
}

std::string counted(std::int64_t count, const std::string& unit) {
  return std::to_string(count) + " " + unit + (count == 1 ? "" : "s");
}

}  // namespace

std::string_view to_string(PlanSource source) {
  switch (source) {
    case PlanSource::pinned:
      return "pinned";
    case PlanSource::exact:
      return "exact";
    case PlanSource::measured:
      return "measured";
    case PlanSource::nearest:
      return "nearest";
    case PlanSource::model:
      return "model";
    case PlanSource::fallback:
      return "fallback";
    case PlanSource::at_hand:
      return "at_hand";
  }
  return "unknown";
}

std::string Plan::explain() const {
  return with_memory_errors([this] {
    std::string text;
    const auto line = [&text](std::string label, const std::string& value) {
      label.resize(16, ' ');
      text += label + value + '\n';
    };
    const bool grouped = has_groups(problem);
    const std::int64_t tiles =
        std::int64_t(tiles_m) * tiles_n * (problem.grouping == Grouping::offsets ? 1 : problem.batch);
    const std::int64_t split_tiles = tiles - stream_k_tiles - data_parallel_tiles;

    line("problem", to_string(problem));
    line("device", device);
    line("M, N, K", std::to_string(problem.m) + ", " + std::to_string(problem.n) + ", " + std::to_string(problem.k));
    if (has_pairs(problem))
      line("pairs",
           std::string(pairing_of(problem) == Pairing::halves ? "columns j and N / 2 + j" : "columns 2j and 2j + 1") +
               " are one of D, which is " + times({problem.m, columns_of_d(problem)}));
    if (grouped)
      line("groups",
           std::to_string(problem.batch) + " by " + std::string(to_string(problem.grouping)) + ", of which " +
               std::to_string(expected_groups(problem)) + " are expected to have about " +
               (problem.grouping == Grouping::along_k
                    ? std::to_string(expected_rows(problem)) + " of k; below are the most iterations that a "
                                                               "tile can have"
                    : counted(expected_rows(problem), "row") + "; below are the most tiles that there can be"));
    line("configuration", to_string(config));
    line("main loop", std::string(to_string(config.main_loop)) + ", " + counted(config.warps, "warp") + ", " +
                          counted(config.stages, "stage") + ", " + std::to_string(threads) + " threads");
    line("block size", "BLK_M, BLK_N, BLK_K = " + times({config.block_m, config.block_n, config.block_k}));
    if (packs(config)) {
      const NormalProblem normal = normalise(problem);
      const Slab slab = slab_of(normal, config);
      line("packing",
           std::string(config.pack_a ? "A" : "") + (config.pack_a && config.pack_b ? " and " : "") +
               (config.pack_b ? "B" : "") + " into " + bytes(packed_bytes) + ", by a kernel that runs first" +
               (is_whole(slab, normal)
                    ? ""
                    : ", for " + times({slab.rows, column_of_d(problem, slab.columns)}) + " of D at a time"));
    }
    line("schedule", std::string(to_string(config.schedule)) + ", " + counted(config.splits, "split") + ", group_m " +
                         std::to_string(config.group_m) + (config.group_m == 0 ? " (row by row)" : ""));
    const int blocks = config.cluster_m * config.cluster_n;
    line("tile grid",
         times({tiles_m, tiles_n}) + (config.swap_ab ? ", M and N swapped" : "") +
             (blocks > 1 ? ", of clusters of " + times({config.cluster_m, config.cluster_n}) + " blocks" : "") +
             (problem.batch > 1 && problem.grouping != Grouping::offsets
                  ? " x " + std::to_string(problem.batch) + " matrices"
                  : ""));
    line("tiles", std::to_string(stream_k_tiles) + " stream-K + " + std::to_string(data_parallel_tiles) +
                      " data-parallel" + (split_tiles > 0 ? " + " + std::to_string(split_tiles) + " split-K" : "") +
                      " = " + std::to_string(tiles) + " in total");
    line("CTAs", std::to_string(ctas));
    line("iterations", std::to_string(k_blocks_per_tile) + " per tile, " + std::to_string(stream_k_blocks) +
                           " stream-K in total, " + std::to_string(tiles * k_blocks_per_tile) + " in all");
    line("registers", registers < 0
                          ? "not compiled yet"
                          : std::to_string(registers) + " a thread, " +
                                (spill_bytes > 0 ? std::to_string(spill_bytes) + " bytes spilled" : "no spills"));
    line("shared memory", bytes(smem_bytes));
    line("workspace", bytes(workspace_bytes));
    line("time", "predicted " + microseconds(predicted.us) + ", " +
                     (measured_us > 0
                          ? "measured " + microseconds(measured_us) + " (spread " + general_text(100 * spread, 2) + "%)"
                          : std::string("not measured")) +
                     ", floor on an H200 " + microseconds(floor_us(problem)));
    if (predicted.main_loop_us > 0) line("predicted", breakdown(predicted) + "; rates: " + rates);
    for (std::size_t i = 0; i < runners_up.size(); ++i) {
      const auto& [other, median_us] = runners_up[i];
      line(i == 0 ? "runners-up" : "", microseconds(median_us) + "  " + to_string(other) +
                                           (median_us < measured_us ? ", ahead by less than the noise" : ""));
    }
    if (constrain(constraints)) line("constraints", to_string(constraints));
    line("source", std::string(to_string(source)));
    line("why", why);
    return text;
  });
}

}  // namespace jitgemm
