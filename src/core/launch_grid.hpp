#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace jitgemm {

/// What the driver is told of a launch.
struct LaunchGrid {
  int cluster = 1;  ///< CTAs of a cluster, which schedules count as one
  int grid = 0;     ///< thread blocks; 0 when there is nothing to write
  int threads = 0;
  std::size_t smem_bytes = 0;
  bool cooperative = false;      ///< all blocks are resident at once, or the launch fails
  bool wants_empty_gpu = false;  ///< blocks of an earlier launch that still run would cost it more than a wait for them
  bool holds_next_back = false;  ///< the next launch, which may start early, starts when this one's blocks have ended
  bool resident = false;         ///< they are so few that they are, too, which the driver is not told
};

/// A kernel's one parameter, a struct that it takes by value.
using ArgumentBytes = std::span<const std::byte>;

template <typename Arguments>
ArgumentBytes bytes_of(const Arguments& arguments) {
  static_assert(std::is_trivially_copyable_v<Arguments>, "the driver copies bytes");
  return std::as_bytes(std::span(&arguments, 1));
}

}  // namespace jitgemm
