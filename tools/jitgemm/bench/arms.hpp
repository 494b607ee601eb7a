#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/record.hpp"
#include "measure/inputs.hpp"
#include "measure/protocol.hpp"
#include "measure/timing.hpp"
#include "peers/candidates.hpp"

namespace jitgemm::cli {

/// One launch with these operands, which have no workspace.
using Launch = std::function<void(const Operands&)>;

/// How the arms of one shape are timed.
struct ArmTiming {
  std::vector<Protocol> protocols;  ///< of a graph's replay all, or of none
  TimingOptions options;
};

/// What is timed on one shape. Equal arms are one, which several results read.
class BenchArms {
 public:
  /// `result` outlives this; report() gives it the configuration and the time. `only`: in one of the protocols. `own`:
  /// what it computes, if that is not what all others do; `is_same`: its results are to be those of the others though.
  void add(ArmResult& result, const std::string& program, const std::string& config, Launch launch,
           std::optional<Protocol> only = {}, std::optional<Problem> own = {}, bool is_same = true);
  /// In each protocol the fastest of the candidates: of the three best by a measurement of all in turn, the best when
  /// they are timed again. One only, as the least of several times would be a time that none of them has. How many run
  /// at all.
  int add_fastest(ArmResult& result, const PeerCandidates& candidates, Backend& backend, Stream stream,
                  const InputPools& inputs, const ArmTiming& timing);
  std::size_t size() const { return arms_.size(); }

  /// Runs every arm once on the same inputs: the first, and those of a problem of their own, against float64, the
  /// others, and those that are to have the same results, against the first. Empty if all agree.
  std::string check(Backend& backend, Stream stream, const Problem& normalised, const InputPools& inputs) const;
  /// All protocols in the same rounds.
  void time(Backend& backend, Stream stream, const InputPools& inputs, const ArmTiming& timing);
  /// What time() found of this protocol, into the results; without a time() the configurations alone.
  void report(const Protocol& protocol) const;
  /// Leaves the `count` fastest of ours that report() named, and those that one of `always` reads. Which they are.
  std::vector<const ArmResult*> keep_fastest(std::size_t count, const std::vector<const ArmResult*>& always);

 private:
  struct One {
    std::string program, config;
    Launch launch;
    std::vector<ArmResult*> results;
    std::vector<Protocol> only;  ///< empty: all
    std::optional<Problem> own;
    bool is_same;
    std::vector<std::pair<Protocol, Timing>> timings = {};

    bool is_of(const Protocol& protocol) const { return only.empty() || std::ranges::count(only, protocol) > 0; }
  };
  std::vector<One> arms_;
};

inline bool faster(const ArmResult& x, const ArmResult& y) { return x.us < y.us; }

}  // namespace jitgemm::cli
