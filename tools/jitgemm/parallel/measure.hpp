#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "measure/inputs.hpp"
#include "measure/memory.hpp"
#include "parallel/meeting.hpp"
#include "parallel/nccl.hpp"
#include "parallel/options.hpp"
#include "parallel/rank.hpp"
#include "parallel/record.hpp"
#include "peers/peers.hpp"

namespace jitgemm::cli {

/// Makes the rank's GPU current for this thread.
void make_rank_current(const RankPlace& place);

/// One rank's side of the measurement. All functions but describe() are collective, and throw Error.
class RankBench {
 public:
  RankBench(const ContextOptions& options, const RankPlace& place, const std::string& nccl_id,
            const ParallelTask& task);

  /// {"device": ..., "nccl": ..., "cublas": ...}
  nlohmann::ordered_json describe() const;
  RankResult measure(const ParallelShape& shape);

 private:
  class Case;  // a shape's operands and arms

  static constexpr std::size_t workspace_bytes = std::size_t(64) << 20;  // of cuBLAS

  const RankPlace place_;
  const ParallelTask& task_;
  Context context_;
  Backend& backend_;
  OwnStream stream_;
  Nccl nccl_;
  TensorParallel in_turn_, overlapped_;
  DeviceMemory workspace_;
  std::unique_ptr<Peers> peers_;
  InputPools inputs_;
  DeviceMemory gathered_, d_, reference_;
  Meeting meeting_;
};

}  // namespace jitgemm::cli
