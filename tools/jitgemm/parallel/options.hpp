#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "common/options.hpp"
#include "parallel/shapes.hpp"

namespace jitgemm::cli {

/// What is timed of a shape. All but the last two give each rank its D.
namespace parallel_arm {
inline constexpr std::string_view cublas_nccl = "cublas_nccl";  ///< the product and NCCL's collective, in turn
inline constexpr std::string_view ours_nccl = "ours_nccl";      ///< the same with Overlap::none
inline constexpr std::string_view ours = "ours";  ///< Overlap::automatic: overlapped, in one shot, or with NCCL
inline constexpr std::string_view cublas_alone = "cublas_alone";  ///< a rank's product, without communication
inline constexpr std::string_view ours_alone = "ours_alone";
inline constexpr std::array all{cublas_nccl, ours_nccl, ours, cublas_alone, ours_alone};
}  // namespace parallel_arm

struct ParallelBenchOptions {
  std::string gpus = "all";
  std::string shapes, csv, type = "bf16";
  std::vector<std::string> arms{parallel_arm::all.begin(), parallel_arm::all.end()};
  int samples = 15;
  double seconds = 1;
  DeviceOptions device;
};

/// What each rank's process is told, all of them the same.
struct ParallelTask {
  std::vector<ParallelShape> shapes;
  DataType type = bf16;
  std::vector<std::string> arms;
  int samples = 15;    ///< of each arm, at least
  double seconds = 1;  ///< more of them meanwhile, of each shape
};

/// Throws Error, also for shapes that do not divide among so many ranks.
ParallelTask task_of(const ParallelBenchOptions& options, int ranks);

/// Times the arms on each shape, in one process a GPU. Throws Error, also at the end if a result was wrong.
void parallel_bench(const ParallelBenchOptions& options);

}  // namespace jitgemm::cli
