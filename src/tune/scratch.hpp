#pragma once

#include "backend/backend.hpp"
#include "jit/arguments.hpp"
#include "tune/device_memory.hpp"
#include "tune/group_rows.hpp"

namespace jitgemm {

/// Memory of a problem that belongs to nobody: sets of random operands, enough that going round them leaves nothing of
/// use in the L2, and a workspace. Scales of blocks, which a problem may have, are all the same.
/// Groups have all rows of a typical problem (core/groups.hpp).
class Scratch {
 public:
  /// Throws Error{out_of_memory} when not even one set fits.
  Scratch(Backend& backend, const NormalProblem& problem, std::size_t workspace_bytes, int counters);

  int sets() const { return sets_; }
  /// Of a problem with groups: how rows come to them. A problem without has no other operands for it.
  Operands operands(int set, Distribution distribution = Distribution::equal) const;
  /// The same of the problem as a batch (core/groups.hpp).
  Operands operands_as_batch(int set) const;
  Workspace workspace() const;
  void zero_counters();

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  int counters() const { return counters_; }

  /// The inputs of all sets in one piece, random throughout.
  void* inputs() const { return inputs_.get(); }
  std::size_t input_bytes() const { return std::size_t(sets_) * (a_bytes_ + b_bytes_); }

 private:
  void allocate_sets();
  void deal_rows_to_groups();
  void point_to_b();
  void* pointers_to_b(int set) const;
  void* group_table(Distribution distribution) const;

  Backend& backend_;
  NormalProblem problem_;
  std::size_t a_bytes_, b_bytes_, c_bytes_, bias_bytes_, d_bytes_, scale_a_bytes_, scale_b_bytes_;  // each of one set
  std::size_t workspace_bytes_;
  int counters_;
  int sets_ = 1;
  DeviceMemory workspace_memory_, counter_memory_, inputs_, addends_, outputs_, scales_, group_rows_, pointers_;
};

}  // namespace jitgemm
