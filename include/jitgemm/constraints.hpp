#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "jitgemm/export.hpp"

namespace jitgemm {

/// What every choice of a Context keeps to, besides being legal. Part of the key of tuning results: what is tuned with
/// other constraints counts for none. Does not concern what the caller pins or computes by other means
/// (ContextOptions::fallback).
struct Constraints {
  /// Any one configuration gives the same bits on every run; choices differ in theirs. With this they do not: the
  /// products of an element of D are added one after the other from k = 0 on, by one kind of instruction, whatever the
  /// tile. On devices of one compute capability the bits then depend neither on what was tuned nor on the number of
  /// SMs; but where operands must be packed they do depend on whether sms, workspace_bytes and a workspace let them be
  /// packed. Groups' never are: where theirs would have to be, a group's bits are not those of a call of it alone.
  /// Costs most where few tiles have a deep k.
  bool batch_invariant = false;
  std::size_t workspace_bytes = SIZE_MAX;  ///< most that workspace_size() comes to: partial tiles and packed operands
  /// Most SMs that the blocks of one call occupy, so most blocks of its grid; 0: all, and more than the device has is
  /// an error. Then no operands are packed. With ContextOptions::dependent_launch, blocks of the next call on the
  /// stream may begin while these still run.
  int sms = 0;

  bool operator==(const Constraints&) const = default;
};

/// "batch_invariant workspace_bytes=0 sms=64": those that constrain; empty if none does.
JITGEMM_EXPORT std::string to_string(const Constraints& constraints);

}  // namespace jitgemm
