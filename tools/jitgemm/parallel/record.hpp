#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "measure/timing.hpp"
#include "parallel/shapes.hpp"

namespace jitgemm::cli {

/// What one rank has measured of a shape.
struct RankResult {
  ParallelShape shape;
  std::map<std::string, std::vector<double>> us;  ///< by arm, a time each sample
  std::vector<std::string> eager;                 ///< arms that are put on the stream, since no capture takes them
  bool overlapped = false, one_shot = false;
  std::string config, why;   ///< these four of the library's plan
  std::string check = "ok";  ///< else what was wrong
};
nlohmann::ordered_json to_json(const RankResult& result);
RankResult parse_rank_result(const nlohmann::ordered_json& json);

/// What all ranks have measured of a shape.
struct ParallelRecord {
  ParallelShape shape;
  int ranks = 0;
  std::map<std::string, Timing> arms;  ///< of the slowest rank of each sample
  std::vector<std::string> eager;
  bool overlapped = false, one_shot = false;
  std::string config, why, check = "ok";

  double us(std::string_view arm) const;  ///< 0: not timed
};
/// Of each rank's, in the order of ranks. Throws Error{internal} if they did not measure the same.
ParallelRecord merge(const std::vector<RankResult>& ranks);

/// Ours over ranks: overlapped or in one shot, else with NCCL; 0: not timed.
double us_of_ours(const ParallelRecord& record);
// Above 1 ours is faster; 0: not known.
double over_cublas_nccl(const ParallelRecord& record);   ///< cuBLAS and NCCL / ours
double over_best_in_turn(const ParallelRecord& record);  ///< the faster product and NCCL in turn / ours
double alone_over_ours(const ParallelRecord& record);    ///< our product alone / ours: 1 is all hidden
/// Of the communication: 1 where ours over ranks takes no longer than alone. NaN: not known.
double share_hidden(const ParallelRecord& record);

std::string csv_header_of_parallel();
std::string csv_line(const ParallelRecord& record, const std::string& device, const std::string& nccl);
/// For people, a line.
std::string table_head();
std::string table_row(const ParallelRecord& record);

}  // namespace jitgemm::cli
