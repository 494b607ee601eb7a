#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/record.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm::cli {

/// What an earlier run has chosen, whose CSV file is there.
class EarlierChoices {
 public:
  /// Throws Error{io}.
  explicit EarlierChoices(const std::string& csv) : csv_(csv), records_(read_csv(csv)) {}

  /// Throws Error{io} if there is none.
  KernelConfig tuned(const Problem& problem) const;
  /// Of an arm without a column of its own.
  std::optional<KernelConfig> of_arm(const Problem& problem, const std::string& arm) const;

 private:
  std::string csv_;
  std::vector<BenchRecord> records_;
};

}  // namespace jitgemm::cli
