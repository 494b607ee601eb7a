#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/child_process.hpp"
#include "parallel/options.hpp"

namespace jitgemm::cli {

/// Which of the processes this is.
struct RankPlace {
  int rank = 0, ranks = 1;
  int gpu = 0;
};

/// The first line that a rank's process reads.
std::string first_line_of(const RankPlace& place, const ParallelTask& task);

/// Measures what the first line from the parent says, and says each result. Throws ExitStatus for what fails, which has
/// been said.
void run_rank(ParentProcess& parent, const ContextOptions& options);

}  // namespace jitgemm::cli
