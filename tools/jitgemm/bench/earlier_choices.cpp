#include "bench/earlier_choices.hpp"

#include "jitgemm/error.hpp"

namespace jitgemm::cli {

KernelConfig EarlierChoices::tuned(const Problem& problem) const {
  const std::string name = to_string(problem);
  for (const BenchRecord& record : records_) {
    if (!record.tuned.config.empty() && to_string(record.problem) == name)
      return parse_kernel_config(record.tuned.config);
  }
  throw Error(ErrorCode::io, csv_ + " has no tuned choice for this shape: tune it, and use --frozen");
}

std::optional<KernelConfig> EarlierChoices::of_arm(const Problem& problem, const std::string& arm) const {
  const std::string name = to_string(problem);
  for (const BenchRecord& record : records_) {
    if (to_string(record.problem) != name) continue;
    for (const NamedArm& other : record.others) {
      if (other.name == arm && !other.result.config.empty()) return parse_kernel_config(other.result.config);
    }
  }
  return std::nullopt;
}

}  // namespace jitgemm::cli
