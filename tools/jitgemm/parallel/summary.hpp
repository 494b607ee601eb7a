#pragma once

#include <string>
#include <vector>

#include "parallel/record.hpp"

namespace jitgemm::cli {

/// Geometric means by exchange and number of tokens, for people.
std::string parallel_summary(const std::vector<ParallelRecord>& records);

}  // namespace jitgemm::cli
