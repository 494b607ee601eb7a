#pragma once

#include <functional>

#include "measure/foreign_kernel.hpp"
#include "measure/host_lead.hpp"
#include "measure/memory.hpp"
#include "measure/sequence.hpp"
#include "parallel/nccl.hpp"

namespace jitgemm::cli {

/// A launch, and how long the host may need to enqueue it.
struct Enqueued {
  std::function<void()> launch;
  double lead_us = 30;
};

/// Times launches that all ranks begin at the same time, with nothing of theirs in the L2, and behind a wait on the
/// device that hides the host's delays. All of it is collective.
class Meeting {
 public:
  Meeting(Backend& backend, Stream stream, Nccl& nccl);

  /// This rank's microseconds.
  double time_us(const Enqueued& enqueued);
  /// The same. Makes the lead as long as the slowest rank's host needs.
  double warm_up_us(Enqueued& enqueued);
  /// Of all ranks' values.
  double largest(double value);

 private:
  void begin_together(double lead_us);

  Backend& backend_;
  Stream stream_;
  Nccl& nccl_;
  DeviceMemory other_, value_;
  ForeignKernel read_other_;
  HostLead lead_;
  Interval interval_;
};

}  // namespace jitgemm::cli
