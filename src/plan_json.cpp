#include "core/out_of_memory.hpp"
#include "jitgemm/plan.hpp"
#include "plan/constraints.hpp"
#include "util/json_document.hpp"

namespace jitgemm {
namespace {

/// The text of an object whose members stay in order.
class ObjectText {
 public:
  ObjectText& add(std::string_view name, const JsonDocument::Json& scalar) {
    return add_text(name, JsonDocument::text_of(scalar));
  }
  /// `text`: JSON.
  ObjectText& add_text(std::string_view name, const std::string& text) {
    text_ += (text_.empty() ? "{" : ",") + JsonDocument::text_of(name) + ':' + text;
    return *this;
  }
  std::string text() const { return text_ + '}'; }

 private:
  std::string text_;
};

std::string predicted_text(const PredictedTime& time) {
  return ObjectText()
      .add("launch_us", time.launch_us)
      .add("packing_us", time.packing_us)
      .add("main_loop_us", time.main_loop_us)
      .add("epilogue_us", time.epilogue_us)
      .add("fixup_us", time.fixup_us)
      .add("memory_us", time.memory_us)
      .add("power_us", time.power_us)
      .text();
}

std::string runners_up_text(const std::vector<MeasuredConfig>& runners_up) {
  std::string text;
  for (const MeasuredConfig& one : runners_up) {
    text += (text.empty() ? "" : ",") +
            ObjectText().add("config", to_string(one.config)).add("measured_us", one.median_us).text();
  }
  return '[' + text + ']';
}

std::string text_of(const Plan& plan) {
  return ObjectText()
      .add("problem", to_string(plan.problem))
      .add("config", to_string(plan.config))
      .add("constraints", to_string(plan.constraints))
      .add("source", to_string(plan.source))
      .add("why", plan.why)
      .add("predicted_us", plan.predicted.us)
      .add_text("predicted", predicted_text(plan.predicted))
      .add("rates", plan.rates)
      .add("measured_us", plan.measured_us)
      .add("spread", plan.spread)
      .add_text("runners_up", runners_up_text(plan.runners_up))
      .add("expected_regret", plan.expected_regret)
      .add("device", plan.device)
      .add("batch", plan.problem.batch)
      .add("tiles_m", plan.tiles_m)
      .add("tiles_n", plan.tiles_n)
      .add("stream_k_tiles", plan.stream_k_tiles)
      .add("data_parallel_tiles", plan.data_parallel_tiles)
      .add("ctas", plan.ctas)
      .add("k_blocks_per_tile", plan.k_blocks_per_tile)
      .add("stream_k_blocks", plan.stream_k_blocks)
      .add("workspace_bytes", plan.workspace_bytes)
      .add("packed_bytes", plan.packed_bytes)
      .add("smem_bytes", plan.smem_bytes)
      .add("threads", plan.threads)
      .add("registers", plan.registers)
      .add("spill_bytes", plan.spill_bytes)
      .text();
}

}  // namespace

std::string Plan::json() const {
  return with_memory_errors([this] { return text_of(*this); });
}

}  // namespace jitgemm
