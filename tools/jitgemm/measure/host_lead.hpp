#pragma once

#include "measure/foreign_kernel.hpp"

namespace jitgemm::cli {

/// Keeps a stream busy with nothing, so that the host gets ahead of it.
class HostLead {
 public:
  explicit HostLead(Backend& backend);

  /// Enqueues a kernel of one thread that waits for so long.
  void spin(double us, Stream stream) const;

 private:
  ForeignKernel kernel_;
};

/// Whether the stream has come to where the backend's event was recorded. Does not wait.
bool event_passed(void* event);

}  // namespace jitgemm::cli
