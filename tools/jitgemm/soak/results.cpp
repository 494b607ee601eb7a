#include "soak/results.hpp"

#include <fmt/core.h>

#include "common/options.hpp"
#include "common/text.hpp"

namespace jitgemm::cli {
namespace {

constexpr std::size_t failures_shown = 10;

std::string name_of(Sharing sharing) { return std::string(sharing_names[std::size_t(sharing)]); }

nlohmann::ordered_json memory_json(const MemoryInUse& memory) {
  return {{"device_bytes", memory.device}, {"host_bytes", memory.host}};
}

void print_for_machines(const SoakResults& results, const SoakFacts& facts) {
  nlohmann::ordered_json sharings;
  for (const Sharing sharing : facts.sharings) {
    const SoakResults::Tally& tally = results.of(sharing);
    sharings[name_of(sharing)] = {
        {"calls", tally.calls.load()}, {"checked", tally.checked.load()}, {"failures", tally.failures.load()}};
  }
  print_json({{"device", to_json(facts.device)},
              {"seed", facts.seed},
              {"threads", facts.threads},
              {"seconds", facts.seconds},
              {"patterns", facts.patterns},
              {"calls", results.calls()},
              {"calls_per_second", double(results.calls()) / facts.seconds},
              {"packed_calls", results.packed()},
              {"checked", results.checked()},
              {"failures", results.failures()},
              {"sharing", sharings},
              {"first_failures", results.first_failures()},
              {"memory_at_start", memory_json(facts.memory_at_start)},
              {"memory_at_end", memory_json(facts.memory_at_end)},
              {"kernels", {{"compiled", facts.counters.compiles}, {"from_disk", facts.counters.disk_hits}}}});
}

void print_for_people(const SoakResults& results, const SoakFacts& facts) {
  fmt::print("{:<9} {} in {:.1f} s, {:.0f} a second, at least {} of packed operands; {} checked, {} failed\n", "calls",
             results.calls(), facts.seconds, double(results.calls()) / facts.seconds, results.packed(),
             results.checked(), results.failures());
  for (const Sharing sharing : facts.sharings) {
    const SoakResults::Tally& tally = results.of(sharing);
    fmt::print("{:<9} {:<14} {:>9} calls, {:>7} checked, {} failed\n", "sharing", name_of(sharing), tally.calls.load(),
               tally.checked.load(), tally.failures.load());
  }
  const MemoryInUse &before = facts.memory_at_start, &after = facts.memory_at_end;
  fmt::print("{:<9} {} {} at the start (warm), {} at the end; resident {} and {}\n", "memory",
             facts.device.emulated ? "heap" : "device", bytes_text(double(before.device)),
             bytes_text(double(after.device)), bytes_text(double(before.host)), bytes_text(double(after.host)));
  fmt::print("{:<9} {} compiled, {} from the disk cache\n", "kernels", facts.counters.compiles,
             facts.counters.disk_hits);
}

}  // namespace

void SoakResults::count(const SoakCall& call, Sharing sharing) {
  ++tallies_[std::size_t(sharing)].calls;
  if (call.pattern->packs) ++packed_;
}

void SoakResults::checked(Sharing sharing) { ++tallies_[std::size_t(sharing)].checked; }

void SoakResults::fail(const SoakCall& call, Sharing sharing, const std::string& what) {
  ++failures_;
  ++tallies_[std::size_t(sharing)].failures;
  const std::lock_guard lock(mutex_);
  if (first_failures_.size() >= failures_shown) return;
  const bool pinned = call.pattern && call.pattern->config;
  first_failures_.push_back(fmt::format("{}{} (threads share: {}): {}", ProblemOptions::command_line(call.problem),
                                        pinned ? " --config \"" + to_string(*call.pattern->config) + "\"" : "",
                                        name_of(sharing), what));
}

std::uint64_t SoakResults::sum(std::atomic<std::uint64_t> Tally::* member) const {
  std::uint64_t sum = 0;
  for (const Tally& tally : tallies_) sum += tally.*member;
  return sum;
}

void report(const SoakResults& results, const SoakFacts& facts, bool json) {
  for (const std::string& text : results.first_failures()) fmt::print(stderr, "jitgemm: failed: {}\n", text);
  if (json)
    print_for_machines(results, facts);
  else
    print_for_people(results, facts);
  if (results.failures() > 0) {
    throw Error(ErrorCode::internal, fmt::format("{} failed: run one alone with `jitgemm run` and the options above",
                                                 counted(std::uint64_t(results.failures()), "call")));
  }
}

}  // namespace jitgemm::cli
