#pragma once

#include <shared_mutex>
#include <unordered_set>

#include "backend/cuda/driver_api.hpp"
#include "core/launch_grid.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm::cuda {

/// The kernels that let the next one start as soon as all of their own blocks run. Thread-safe.
class EarlyTriggers {
 public:
  void add(CUfunction kernel);
  void remove(CUfunction kernel) noexcept;
  bool contains(CUfunction kernel) const;

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_set<CUfunction> kernels_;
};

/// When a kernel that is captured now, and waits for what is before it by itself, may start: a capture knows what that
/// is. On an H200, of a kernel of 3 us in a replayed graph:
///
///   the node before              an ordinary edge    started early by its trigger    started once its blocks all run
///   one that triggers early      2.6 us              1.6                             1.6
///   another's, of 1 us           2.74                2.98                            2.85
///   another's, of 5 us           2.71                3.05                            2.19
///
/// (tools/results/NOTES.md, 33). So behind others' kernels a start is early only where these run for a while; how long,
/// their grids tell; and where the launch does not want an empty GPU. Such a one starts early behind ours where that
/// leaves room for it (a launch of 56 blocks behind one of 112, in turns: 98.6 us together, 88.8 with ordinary edges;
/// 54). Outside of captures the trigger's way is faster behind all of them (2.6 to 2.8 us against 3.7).
class CapturedStart {
 public:
  /// Of the next launch on the stream, `next`, which is being captured; `device_sms` are its device's. Throws
  /// Error{not_capturable} if the capture has become invalid. As a graph is not thread-safe, no other thread captures
  /// into this one while this lives.
  CapturedStart(const DriverApi& api, const EarlyTriggers& triggers, int device_sms, const LaunchGrid& next,
                Stream stream);
  /// Takes back what it has told the capture, unless a launch has used it up.
  ~CapturedStart();
  CapturedStart(const CapturedStart&) = delete;
  CapturedStart& operator=(const CapturedStart&) = delete;

  /// Whether the launch is to have the attribute CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
  bool by_trigger() const { return by_trigger_; }
  void launched() { edge_set_ = false; }

 private:
  CUresult set_edge(const CUgraphEdgeData& edge);

  const DriverApi& api_;
  CUstream stream_;
  CUgraphNode before_ = nullptr;
  bool by_trigger_ = false, edge_set_ = false;
};

}  // namespace jitgemm::cuda
