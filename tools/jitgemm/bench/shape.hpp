#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/arms.hpp"
#include "bench/earlier_choices.hpp"
#include "bench/named_choices.hpp"
#include "bench/options.hpp"
#include "bench/peers.hpp"
#include "bench/record.hpp"
#include "bench/variants.hpp"
#include "common/progress.hpp"
#include "common/shapes.hpp"
#include "measure/host_lead.hpp"
#include "measure/inputs.hpp"
#include "measure/memory.hpp"
#include "measure/neighbour.hpp"

namespace jitgemm::cli {

/// Times the arms that are asked for, one shape after another.
class ShapeBench {
 public:
  explicit ShapeBench(const BenchOptions& options);

  bool emulated() const { return emulated_; }
  DeviceDescription device() const { return tuner_.device(); }
  const BenchPeers& peers() const { return *peers_; }
  /// The options' problem, without sizes.
  const Problem& base() const { return base_; }

  /// Of choices that are known beforehand, those of all shapes side by side.
  void compile_ahead(const std::vector<Shape>& shapes, Progress& progress);
  /// What is known of a shape before anything is timed, in each protocol.
  std::vector<BenchRecord> blank_records(const Problem& problem) const;
  /// Fills in the rest, of one shape in one protocol or more. What fails is in the column `check`.
  void bench(std::vector<BenchRecord>& records);

 private:
  /// A problem of its own beside the one that is timed, with results of its own or the same.
  enum class Beside { nothing, other, same };
  struct NamedProblem {
    std::string name;  ///< of the arm
    Problem problem;
    Beside beside;
  };
  struct Choices {
    KernelConfig tuned;
    std::optional<KernelConfig> best;  ///< of all measured
  };

  /// Everything is in the first record until it is copied into those of the other protocols.
  void bench_arms(std::vector<BenchRecord>& records);
  void time(std::vector<BenchRecord>& records, BenchArms& arms, const std::vector<Protocol>& protocols);
  /// The fastest of ours are timed again, and what is not drawn.
  void add_finalists(BenchRecord& record, BenchArms arms, const std::function<void(BenchArms&)>& time_again);
  TimingOptions timing(double round_ms);
  /// Whether an arm is to be timed: it is named, or none is.
  bool wanted(bool flag) const;
  bool fits(Context& runner, const Problem& p, const KernelConfig& config) const;
  /// One of ours. The workspace is the caller's: else each captured launch would own one.
  void add(BenchArms& arms, ArmResult& result, Context& runner, const Problem& p, const KernelConfig& config,
           const std::string& program = "jitgemm", Beside beside = Beside::nothing);
  /// Of a problem with an epilogue of one's own: without it, as the arm plain, and what says the same with the
  /// library's own fields.
  std::vector<NamedProblem> compared_with(const Problem& p) const;
  void add_ours(BenchRecord& record, BenchArms& arms, Context& runner);
  /// Arms without a column of their own. What is returned lives until they have been timed.
  std::vector<std::unique_ptr<Context>> add_others(BenchRecord& record, BenchArms& arms, Context& runner);
  /// By the tuner, or its database.
  Choices measured(BenchRecord& record, Context& runner);
  std::optional<KernelConfig> earlier_choice(const Problem& p, const Variant& variant) const;
  KernelConfig variant_choice(BenchRecord& record, std::size_t variant);
  /// By a short measurement of the cost model's first choices among those of one main loop.
  Choices screened(Context& runner, const Problem& p);
  /// The cost model's first choices, of the main loop that was asked for.
  std::vector<KernelConfig> first_candidates(Context& context, const Problem& p) const;
  /// Side by side and ahead, so that the tuner's budget goes into measuring. What fails to compile is the tuner's to
  /// report.
  static void compile(Context& context, const Problem& p, const std::vector<KernelConfig>& configs);

  const BenchOptions& options_;
  ContextOptions context_options_;
  std::vector<NamedChoice> choices_;
  Context tuner_;
  Backend& backend_;
  bool emulated_;
  OwnStream stream_;
  Problem base_;
  InputPools inputs_;
  DeviceMemory workspace_;
  std::optional<BenchPeers> peers_;
  std::vector<KernelConfig> pinned_;
  std::optional<EarlierChoices> earlier_;  ///< of --tuned-as
  std::vector<Variant> variants_;
  std::vector<std::unique_ptr<VariantChooser>> choosers_;  ///< of those, where they choose
  std::vector<Protocol> protocols_;
  std::optional<Neighbour> neighbour_;  ///< on a GPU, where a protocol has one
  std::optional<HostLead> lead_;
};

}  // namespace jitgemm::cli
