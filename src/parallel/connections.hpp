#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "parallel/agreement.hpp"
#include "parallel/communicator.hpp"
#include "parallel/left_behind.hpp"
#include "parallel/one_shot.hpp"
#include "parallel/overlapped.hpp"
#include "util/function_ref.hpp"

namespace jitgemm {

/// What the ranks of a node share for exchanges of their own, each made when the first product needs it. For one call
/// at a time, but for check() and abort(), which wait for none.
class Connections {
 public:
  Connections(Context& context, Communicator& communicator) : context_(context), communicator_(communicator) {}

  /// Collective. Makes what is chosen for the problem, if that needs something; false, and for good, where the ranks'
  /// devices do not reach each other.
  bool make(ParallelMethod chosen, const RankProblem& problem, const std::string& digest);
  /// Empty, or why nothing can be made.
  const std::string& why_none() const { return why_none_; }

  // Once made.
  Overlapped& overlapped() { return *overlapped_; }
  OneShot& one_shot() { return *one_shot_; }

  /// Collective. Frees what only measurements had. Each rank's own calls with it have ended.
  void drop_unused_memory();

  void leave_all_behind() noexcept {
    leave_behind(overlapped_.release());
    leave_behind(one_shot_.release());
  }

  /// Fails the communicator if a kernel has waited in vain.
  void check() const;
  void abort() noexcept;

 private:
  AllGatherBytes all_gather();
  /// Collective `work`, which fails on all ranks if on any: there with the reason of the first that has one.
  void connect(const std::string& digest, FunctionRef<void()> work);
  void make_overlapped(const std::string& digest);
  void make_one_shot(const RankProblem& problem, const std::string& digest);

  Context& context_;
  Communicator& communicator_;
  std::unique_ptr<Overlapped> overlapped_;
  std::unique_ptr<OneShot> one_shot_;
  // The same.
  std::atomic<Overlapped*> used_overlapped_ = nullptr;
  std::atomic<OneShot*> used_one_shot_ = nullptr;
  std::string why_none_;
};

}  // namespace jitgemm
