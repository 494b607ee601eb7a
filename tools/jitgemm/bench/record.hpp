#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "jitgemm/jitgemm.hpp"
#include "measure/protocol.hpp"

namespace jitgemm::cli {

/// One arm's result on one shape. No time: the arm was not run.
struct ArmResult {
  std::string config;  ///< of ours; of cuBLASLt the candidate's number, of Triton its block sizes
  double us = 0;       ///< median of the rounds
  double spread = 0;   ///< (p80 - p20) / median
  double p20_us = 0, p80_us = 0;

  bool timed() const { return us > 0; }
};

/// An arm that has no column of its own.
struct NamedArm {
  std::string name;  ///< one word
  ArmResult result = {};
};

/// All that `jitgemm bench` finds out about one shape by one protocol: one line of its CSV.
struct BenchRecord {
  std::string device;  ///< and what else calls keep to or are given
  Problem problem;
  Protocol protocol;
  double waves = 0;  ///< of 128 x 256 tiles
  double floor_us = 0;
  int sets = 0;  ///< of inputs, in turn
  ArmResult model, tuned, best;
  ArmResult cublas, cublaslt, triton;
  int cublaslt_candidates = 0;
  std::string absent;  ///< why peers have no time, where they cannot do the problem
  std::vector<ArmResult> pinned;
  std::vector<NamedArm> others;
  std::string check;  ///< "ok", or what is wrong

  /// Whether both are about the same problem on the same device by the same protocol.
  bool same_case(const BenchRecord& other) const;
  void note_absent(const std::string& why);
};

std::string csv_header();
std::string csv_line(const BenchRecord& record);  ///< without the newline
/// The whole lines of a file, of which early ones have no protocol and mean rep; Error{io} if it is of another version
/// of this command.
std::vector<BenchRecord> read_csv(const std::filesystem::path& file);

nlohmann::ordered_json to_json(const BenchRecord& record);

}  // namespace jitgemm::cli
