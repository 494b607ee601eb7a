#pragma once

#include <atomic>

#include "backend/backend.hpp"

namespace jitgemm {

/// How long kernels wait for other ranks, and what they say of a wait in vain. Thread-safe.
class KernelPatience {
 public:
  KernelPatience(Backend& backend, double timeout_seconds)
      : backend_(backend),
        patience_{
            .nanoseconds = static_cast<unsigned long long>(timeout_seconds * 1e9),
            .report = static_cast<device::Patience::Report*>(backend.allocate_on_host(sizeof *patience_.report))} {}
  ~KernelPatience() { backend_.release_on_host(patience_.report); }
  KernelPatience(const KernelPatience&) = delete;
  KernelPatience& operator=(const KernelPatience&) = delete;

  /// What a kernel is given.
  const device::Patience& get() const { return patience_; }

  /// What a kernel has waited for in vain, if any has.
  device::Patience::Report report() const {
    device::Patience::Report report = {};
    report.state = std::atomic_ref(patience_.report->state).load(std::memory_order_acquire);
    if (report.state == device::Patience::well) return report;
    report.rank = patience_.report->rank;
    report.epoch = patience_.report->epoch;
    return report;
  }
  /// Ends all waits, those of later kernels, too.
  void abort() noexcept {
    std::atomic_ref(patience_.report->state).store(device::Patience::aborted, std::memory_order_release);
  }

 private:
  Backend& backend_;
  device::Patience patience_;
};

}  // namespace jitgemm
