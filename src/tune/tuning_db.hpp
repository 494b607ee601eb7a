#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jitgemm/constraints.hpp"
#include "jitgemm/exchange.hpp"
#include "jitgemm/plan.hpp"
#include "kernels/legality.hpp"

namespace jitgemm {

/// The ranks that compute a product together, and what they exchange for it.
struct AcrossRanks {
  int ranks = 1;  ///< 1: gemm()
  Exchange exchange = Exchange::all_gather_a;
  bool operator==(const AcrossRanks&) const = default;
};
std::string to_string(const AcrossRanks& across);  ///< "reduce_scatter_d of 4 ranks"; empty for one

struct TuningRecord {
  NormalProblem problem;  ///< shape_of(); across ranks, of what each is given
  AcrossRanks across = {};
  Constraints constraints = {};
  std::string device_name;
  int compute_capability = 0, sm_count = 0;
  bool emulated = false;
  KernelConfig config;
  ParallelMethod method = ParallelMethod::unfused;  ///< across ranks, that has the configuration
  double median_us = 0, spread = 0;
  std::string library_version;
  std::string candidates;  ///< candidate_set() of those measured; empty: not all were, or not known
  std::vector<MeasuredConfig> runners_up = {};  ///< a few of the same measurement, best first
  std::string date;                             ///< of the measurement, "2026-11-21"; add() fills it in
};

enum class Match : std::uint8_t { none, nearest, exact };
struct TuningLookup {
  Match match = Match::none;
  KernelConfig config;
  double measured_us = 0, spread = 0;  ///< of this very problem, else 0
  std::string why = {};                ///< "measured 2026-.. on .." or "nearest is m=.. at distance .., measured .."
  std::vector<MeasuredConfig> runners_up = {};      ///< of an exact one
  double expected_regret = 0;                       ///< of a nearest one that judge_nearest() has seen
  ParallelMethod method = ParallelMethod::unfused;  ///< across ranks
};

/// The own file's name in a cache directory.
inline constexpr const char* tuning_db_name = "tuning.jsonl";
/// Beside it, what Contexts with ContextOptions::at_hand_within have measured. It is the best of the kernels that were
/// at hand then, so no answer for others.
inline constexpr const char* at_hand_db_name = "tuning_at_hand.jsonl";

/// Measured choices as JSON lines, one record a line; the last of equal problems on one device wins. Processes append
/// at once and read at each look-up what others have added. A damaged line is skipped on its own, with one warning a
/// file; one that another version of the library has written and this one cannot read, silently. What the file does not
/// take is kept in memory, and tried again with the next record. Thread-safe. Never throws for a file that cannot be
/// used, as one that others could have written, see LineFile.
class TuningDb {
 public:
  /// file: nullopt: memory only. system_file: read after it, never written, may be absent. mode: see LineFile.
  explicit TuningDb(std::optional<std::filesystem::path> file,
                    std::optional<std::filesystem::path> system_file = std::nullopt, mode_t mode = 0600);
  /// Exact: the same shape, constraints, compute capability and SM count; the same device name is preferred. Else
  /// nearest: the record of the same types, layouts and constraints that is least far in the sum of |log2| of m, n, k,
  /// at most 1 in each. Its configuration is legal for this problem and keeps to the constraints, and one that counts
  /// on the SMs comes only from a device with as many. Of both files: the own exact record, the system's exact one, the
  /// nearest of either.
  TuningLookup find(const NormalProblem& shape, const DeviceInfo& device, const Constraints& constraints = {});
  /// Of a product across ranks; exact or none.
  TuningLookup find(const NormalProblem& shape, const AcrossRanks& across, const DeviceInfo& device,
                    const Constraints& constraints);
  void add(const TuningRecord& record);
  /// Adds those that replace what the file has of their problem and device, and returns how many: see replaces().
  /// Throws Error{io} if the file does not take them.
  std::size_t merge(const std::vector<TuningRecord>& records);
  /// Of both files, without the system's records that an own one hides.
  std::vector<TuningRecord> records();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Of a file that a user names, whoever wrote it. `foreign`: how many lines are of versions that this one cannot read.
/// Other lines that are no records cost a warning. Throws Error{io} if it cannot be read, or they all are such.
std::vector<TuningRecord> read_records(const std::filesystem::path& file, std::size_t& foreign);

/// What the record's configuration is a kernel's for: the problem itself or, across ranks, each one's part in it.
/// Throws Error{invalid_problem} if the method does not compute it.
NormalProblem problem_of_kernel(const TuningRecord& record);

/// Whether they are about the same problem, ranks, constraints and device.
bool same_key(const TuningRecord& x, const TuningRecord& y);
/// Of two records with the same key the later measurement counts, of those of one day the faster. A total order.
bool replaces(const TuningRecord& record, const TuningRecord& old);

std::string to_json_line(const TuningRecord& record);  ///< without the newline
/// nullopt for a line that is no record. `foreign`: another version of the library has written it.
std::optional<TuningRecord> parse_json_line(const std::string& line, std::string* why_not = nullptr,
                                            bool* foreign = nullptr);

}  // namespace jitgemm
