#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/record.hpp"
#include "measure/inputs.hpp"
#include "measure/timing.hpp"
#include "peers/candidates.hpp"

namespace jitgemm::cli {

/// One launch with these operands, which have no workspace.
using Launch = std::function<void(const Operands&)>;

/// What is timed on one shape. Equal arms are one, which several results read.
class BenchArms {
 public:
  /// `result` outlives this; it gets its configuration now and its time from time().
  void add(ArmResult& result, const std::string& program, const std::string& config, Launch launch);
  /// The fastest of the candidates: of the three best by a brief measurement of each, the best when they are timed in
  /// turn. One only, as the least of several times would be a time that none of them has. How many run at all.
  int add_fastest(ArmResult& result, const PeerCandidates& candidates, Backend& backend, Stream stream,
                  const InputPools& inputs, double round_ms);
  std::size_t size() const { return arms_.size(); }

  /// Runs every arm once on the same inputs: the first against float64, the others against the first. Empty if all
  /// agree.
  std::string check(Backend& backend, Stream stream, const Problem& normalised, const InputPools& inputs) const;
  void time(Backend& backend, Stream stream, const InputPools& inputs, const TimingOptions& options);
  /// Leaves the `count` fastest of ours that time() found, and those that one of `always` reads. Which they are.
  std::vector<const ArmResult*> keep_fastest(std::size_t count, const std::vector<const ArmResult*>& always);

 private:
  struct One {
    std::string program, config;
    Launch launch;
    std::vector<ArmResult*> results;
  };
  std::vector<One> arms_;
};

inline bool faster(const ArmResult& x, const ArmResult& y) { return x.us < y.us; }

}  // namespace jitgemm::cli
