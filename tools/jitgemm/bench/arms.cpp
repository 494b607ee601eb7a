#include "bench/arms.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "backend/backend.hpp"
#include "measure/check.hpp"
#include "measure/launch_graph.hpp"
#include "measure/memory.hpp"

namespace jitgemm::cli {
namespace {

/// A suggestion that does not run is no candidate; nor is one that no graph takes.
bool runs(Backend& backend, Stream stream, const Arm& arm) {
  try {
    arm(0);
    backend.synchronize(stream);
    const LaunchGraph graph(stream, [&] { arm(0); });
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void BenchArms::add(ArmResult& result, const std::string& program, const std::string& config, Launch launch,
                    std::optional<Protocol> only, std::optional<Problem> own, bool is_same) {
  result.config = config;
  const std::vector<Protocol> protocols = only ? std::vector{*only} : std::vector<Protocol>();
  for (One& arm : arms_) {
    if (arm.program != program || arm.config != config) continue;
    if (protocols.empty() || arm.only.empty())
      arm.only.clear();
    else
      arm.only.push_back(*only);
    return arm.results.push_back(&result);
  }
  arms_.push_back({program, config, std::move(launch), {&result}, protocols, own, is_same});
}

int BenchArms::add_fastest(ArmResult& result, const PeerCandidates& candidates, Backend& backend, Stream stream,
                           const InputPools& inputs, const ArmTiming& timing) {
  const auto arm_of = [&](int candidate) {
    return [&, candidate](int set) { candidates.launch(inputs.operands(set), candidate); };
  };
  std::vector<int> order;
  for (int i = 0; i < candidates.count; ++i) {
    if (runs(backend, stream, arm_of(i))) order.push_back(i);
  }
  if (order.empty()) return 0;
  const int run = int(order.size());
  const Protocol& first = timing.protocols.front();
  const auto time = [&](const std::vector<Protocol>& protocols, int rounds) {
    std::vector<TimedArm> arms;
    for (const Protocol& protocol : protocols) {
      for (const int candidate : order) arms.push_back({arm_of(candidate), protocol.mix});
    }
    TimingOptions options = timing.options;
    options.rounds = rounds;
    return time_arms(backend, stream, arms, inputs.sets(), options);
  };
  const std::vector<Timing> all = time({first}, 5);
  std::vector<std::size_t> ranks(order.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t(0));
  std::ranges::stable_sort(ranks, {}, [&](std::size_t i) { return all[i].median_us; });
  ranks.resize(std::min<std::size_t>(ranks.size(), 3));
  std::vector<int> best;
  for (const std::size_t i : ranks) best.push_back(order[i]);
  order = best;
  const std::vector<Timing> timings = time(timing.protocols, 9);
  for (std::size_t i = 0; i < timing.protocols.size(); ++i) {
    const auto begin = timings.begin() + std::ptrdiff_t(i * order.size());
    const auto fastest =
        std::ranges::min_element(begin, begin + std::ptrdiff_t(order.size()), {}, &Timing::median_us) - begin;
    const int candidate = order[std::size_t(fastest)];
    add(
        result, candidates.program, candidates.name(candidate),
        [launch = candidates.launch, candidate](const Operands& operands) { launch(operands, candidate); },
        timing.protocols[i]);
  }
  return run;
}

std::string BenchArms::check(Backend& backend, Stream stream, const Problem& p, const InputPools& inputs) const {
  const Operands first = inputs.operands(0);
  std::size_t most_bytes = std::max<std::size_t>(bytes_of_d(p), 256);
  for (const One& arm : arms_)
    if (arm.own) most_bytes = std::max(most_bytes, bytes_of_d(*arm.own));
  const DeviceMemory other_d(backend, most_bytes);
  Operands others = first;
  others.d = other_d.data();
  for (const One& arm : arms_) {
    const bool is_first = &arm == &arms_.front();
    const Operands& operands = is_first ? first : others;
    const Problem& computed = arm.own ? *arm.own : p;
    poison(backend, computed, operands);
    arm.launch(operands);
    backend.synchronize(stream);
    std::string wrong;
    if (is_first || arm.own) {
      const Check check = check_against_reference(backend, computed, operands, 1 << 14);
      if (!check.passed())
        wrong = fmt::format("{} is {}, should be {}", element_name(p, check.worst), check.got, check.expected);
    }
    if (wrong.empty() && !is_first && arm.is_same) wrong = compare_rows(backend, p, others, first.d);
    if (!wrong.empty()) return fmt::format("{} ({}): {}", arm.program, arm.config, wrong);
  }
  return {};
}

std::vector<const ArmResult*> BenchArms::keep_fastest(std::size_t count, const std::vector<const ArmResult*>& always) {
  std::vector<const One*> ours;
  for (const One& arm : arms_) {
    if (arm.program == "jitgemm") ours.push_back(&arm);
  }
  std::ranges::stable_sort(ours, {}, [](const One* arm) { return arm->results.front()->us; });
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

void BenchArms::time(Backend& backend, Stream stream, const InputPools& inputs, const ArmTiming& timing) {
  std::vector<TimedArm> timed;
  std::vector<std::pair<One*, Protocol>> whose;
  for (One& arm : arms_) {
    arm.timings.clear();
    for (const Protocol& protocol : timing.protocols) {
      if (!arm.is_of(protocol)) continue;
      timed.push_back({[&arm, &inputs](int set) { arm.launch(inputs.operands(set)); }, protocol.mix});
      whose.emplace_back(&arm, protocol);
    }
  }
  const std::vector<Timing> timings = time_arms(backend, stream, timed, inputs.sets(), timing.options);
  for (std::size_t i = 0; i < whose.size(); ++i) whose[i].first->timings.emplace_back(whose[i].second, timings[i]);
}

void BenchArms::report(const Protocol& protocol) const {
  for (const One& arm : arms_) {
    if (!arm.is_of(protocol)) continue;
    const auto found = std::ranges::find(arm.timings, protocol, [](const auto& timed) { return timed.first; });
    const Timing timing = found == arm.timings.end() ? Timing() : found->second;
    for (ArmResult* result : arm.results) {
      result->config = arm.config;
      result->us = timing.median_us;
      result->spread = timing.spread;
      result->p20_us = timing.p20_us;
      result->p80_us = timing.p80_us;
    }
  }
}

}  // namespace jitgemm::cli
