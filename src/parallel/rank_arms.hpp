#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.hpp"
#include "parallel/calls_in_flight.hpp"
#include "parallel/communicator.hpp"
#include "parallel/overlapped.hpp"
#include "parallel/parallel_product.hpp"
#include "parallel/rank_tuning.hpp"
#include "tune/compile_ahead.hpp"
#include "tune/device_memory.hpp"
#include "tune/measurement.hpp"
#include "tune/scratch.hpp"

namespace jitgemm {

/// What of a TensorParallel its products are made of and run with.
struct ProductParts {
  Context& context;
  Communicator& communicator;
  CallsInFlight& calls;
  Overlapped& overlapped;
  std::size_t staging_bytes;    ///< TensorParallelOptions'
  std::function<void()> check;  ///< throws what calls have left behind
};

/// Products of a problem by several methods, timed on scratch operands and a stream of their own, behind all calls in
/// flight. A sample is a recording of several calls behind the same once more, so that the hosts' delays are in
/// neither; each call reads other operands than the one before, enough of them to have left the L2.
class ProductArms final : public RankArms {
 public:
  /// The task's candidates of `problem`. All outlive this.
  ProductArms(ProductParts parts, const RankProblem& problem, const RankTask& task);
  /// What a rank that is lost may still use stays allocated.
  ~ProductArms() override;
  ProductArms(const ProductArms&) = delete;
  ProductArms& operator=(const ProductArms&) = delete;

  void allocate() override;
  void compile(std::size_t candidate) override;
  void stage(std::size_t candidate) override;
  void run(std::size_t candidate) override;
  void prepare(std::size_t candidate, int calls) override;
  double sample(std::size_t candidate) override;

 private:
  struct Arm {
    std::optional<Overlapped::Prepared> prepared;  // until it has memory
    std::unique_ptr<ParallelProduct> product;
    DeviceMemory staging{nullptr, {nullptr}};
    int calls = 0;
    std::unique_ptr<Recording> recording;  // of them
  };

  /// Memory for the candidate that needs the most, so that one piece of it serves all.
  void stage_largest();
  void enqueue(Arm& arm, int set, Stream stream);
  /// Behind all calls in flight; done on return.
  void time(FunctionRef<void()> work);
  int next_set() { return set_ = (set_ + 1) % memory_->scratch.sets(); }

  struct Memory {
    Memory(Backend& backend, const NormalProblem& problem, std::size_t arm_count)
        : scratch(backend, problem, 0, 0), arms(arm_count) {}
    Scratch scratch;
    std::optional<Overlapped::Prepared> largest;  // whose memory all overlapped arms have
    std::vector<Arm> arms;                        // which use all this
  };

  ProductParts parts_;
  Backend& backend_;
  std::unique_ptr<Backend::RelaxedCapture> relaxed_;
  const RankProblem& problem_;
  const RankTask& task_;
  std::unique_ptr<Memory> memory_;
  std::optional<LaunchTimer> timer_;
  std::optional<CompileAhead> kernels_;
  int set_ = 0;
};

}  // namespace jitgemm
