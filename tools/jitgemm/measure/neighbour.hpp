#pragma once

#include "measure/foreign_kernel.hpp"
#include "measure/memory.hpp"

namespace jitgemm::cli {

/// A kernel of someone else's that stands between launches that are timed. It reads and writes memory of its own.
class Neighbour {
 public:
  enum class Size {
    small,  ///< a block an SM, and little to do
    large,  ///< some 20 us: three waves of blocks whose shared memory leaves no room for a second block on the SM
  };

  Neighbour(Backend& backend, Size size);

  void launch(Stream stream) const;

 private:
  int blocks_;
  DeviceMemory memory_;
  ForeignKernel kernel_;
};

}  // namespace jitgemm::cli
