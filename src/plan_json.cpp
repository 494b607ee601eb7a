#include <nlohmann/json.hpp>

#include "jitgemm/plan.hpp"
#include "plan/constraints.hpp"

namespace jitgemm {

std::string Plan::json() const {
  nlohmann::ordered_json others = nlohmann::ordered_json::array();
  for (const MeasuredConfig& runner_up : runners_up)
    others.push_back({{"config", to_string(runner_up.config)}, {"measured_us", runner_up.median_us}});
  const nlohmann::ordered_json object{{"problem", to_string(problem)},
                                      {"config", to_string(config)},
                                      {"constraints", to_string(constraints)},
                                      {"source", to_string(source)},
                                      {"why", why},
                                      {"predicted_us", predicted.us},
                                      {"predicted",
                                       {{"launch_us", predicted.launch_us},
                                        {"packing_us", predicted.packing_us},
                                        {"main_loop_us", predicted.main_loop_us},
                                        {"epilogue_us", predicted.epilogue_us},
                                        {"fixup_us", predicted.fixup_us},
                                        {"memory_us", predicted.memory_us},
                                        {"power_us", predicted.power_us}}},
                                      {"rates", rates},
                                      {"measured_us", measured_us},
                                      {"spread", spread},
                                      {"runners_up", others},
                                      {"expected_regret", expected_regret},
                                      {"device", device},
                                      {"batch", problem.batch},
                                      {"tiles_m", tiles_m},
                                      {"tiles_n", tiles_n},
                                      {"stream_k_tiles", stream_k_tiles},
                                      {"data_parallel_tiles", data_parallel_tiles},
                                      {"ctas", ctas},
                                      {"k_blocks_per_tile", k_blocks_per_tile},
                                      {"stream_k_blocks", stream_k_blocks},
                                      {"workspace_bytes", workspace_bytes},
                                      {"packed_bytes", packed_bytes},
                                      {"smem_bytes", smem_bytes},
                                      {"threads", threads},
                                      {"registers", registers},
                                      {"spill_bytes", spill_bytes}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace jitgemm
