#include "bench/arms.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "backend/backend.hpp"
#include "measure/check.hpp"
#include "measure/memory.hpp"
#include "tune/measurement.hpp"

namespace jitgemm::cli {

void BenchArms::add(ArmResult& result, const std::string& program, const std::string& config, Launch launch) {
  result.config = config;
  for (One& arm : arms_) {
    if (arm.program == program && arm.config == config) return arm.results.push_back(&result);
  }
  arms_.push_back({program, config, std::move(launch), {&result}});
}

int BenchArms::add_fastest(ArmResult& result, const PeerCandidates& candidates, Backend& backend, Stream stream,
                           const InputPools& inputs, double round_ms) {
  const TimingOptions brief{.rounds = 2, .round_ms = round_ms, .max_launches = 200};
  std::vector<std::pair<double, int>> order;
  for (int i = 0; i < candidates.count; ++i) {
    const Arm arm = [&](int set) { candidates.launch(inputs.operands(set), i); };
    try {
      order.emplace_back(time_arms(backend, stream, {arm}, inputs.sets(), brief).front().median_us, i);
    } catch (const Error&) {  // a suggestion that does not run is no candidate
    }
  }
  std::sort(order.begin(), order.end());
  if (order.empty()) return 0;
  const int run = int(order.size());
  order.resize(std::min<std::size_t>(order.size(), 3));
  std::vector<Arm> finalists;
  for (const auto& [us, candidate] : order) {
    finalists.push_back([&, candidate](int set) { candidates.launch(inputs.operands(set), candidate); });
  }
  const std::vector<Timing> timings = time_arms(backend, stream, finalists, inputs.sets(),
                                                {.rounds = 9, .round_ms = round_ms, .warm_up_ms = warm_up_ms});
  const auto fastest = std::ranges::min_element(timings, {}, &Timing::median_us) - timings.begin();
  const int candidate = order[std::size_t(fastest)].second;
  add(result, candidates.program, candidates.name(candidate),
      [launch = candidates.launch, candidate](const Operands& operands) { launch(operands, candidate); });
  return run;
}

std::string BenchArms::check(Backend& backend, Stream stream, const Problem& p, const InputPools& inputs) const {
  const Operands first = inputs.operands(0);
  const DeviceMemory other_d(backend, std::max<std::size_t>(bytes_of_d(p), 256));
  Operands others = first;
  others.d = other_d.data();
  for (const One& arm : arms_) {
    const bool is_first = &arm == &arms_.front();
    const Operands& operands = is_first ? first : others;
    poison(backend, p, operands);
    arm.launch(operands);
    backend.synchronize(stream);
    std::string wrong;
    if (is_first) {
      const Check check = check_against_reference(backend, p, operands, 1 << 14);
      if (!check.passed())
        wrong = fmt::format("{} is {}, should be {}", element_name(p, check), check.got, check.expected);
    } else {
      wrong = compare_rows(backend, p, others.d, first.d);
    }
    if (!wrong.empty()) return fmt::format("{} ({}): {}", arm.program, arm.config, wrong);
  }
  return {};
}

std::vector<const ArmResult*> BenchArms::keep_fastest(std::size_t count, const std::vector<const ArmResult*>& always) {
  std::vector<const One*> ours;
  for (const One& arm : arms_) {
    if (arm.program == "jitgemm") ours.push_back(&arm);
  }
  std::ranges::sort(ours, {}, [](const One* arm) { return arm->results.front()->us; });
  ours.resize(std::min(count, ours.size()));
  std::vector<const ArmResult*> kept;
  for (const One* arm : ours) kept.push_back(arm->results.front());
  std::erase_if(arms_, [&](const One& arm) {
    const auto is_in = [&](const std::vector<const ArmResult*>& some) {
      return std::ranges::any_of(arm.results,
                                 [&](const ArmResult* result) { return std::ranges::count(some, result) > 0; });
    };
    return !is_in(kept) && !is_in(always);
  });
  return kept;
}

void BenchArms::time(Backend& backend, Stream stream, const InputPools& inputs, const TimingOptions& options) {
  std::vector<Arm> timed;
  for (const One& arm : arms_) {
    timed.push_back([&](int set) { arm.launch(inputs.operands(set)); });
  }
  const std::vector<Timing> timings = time_arms(backend, stream, timed, inputs.sets(), options);
  for (std::size_t i = 0; i < arms_.size(); ++i) {
    for (ArmResult* result : arms_[i].results) {
      result->us = timings[i].median_us;
      result->spread = timings[i].spread;
      result->p20_us = timings[i].p20_us;
      result->p80_us = timings[i].p80_us;
    }
  }
}

}  // namespace jitgemm::cli
