#pragma once

#include "common/child_process.hpp"
#include "jitgemm/jitgemm.hpp"

namespace CLI {
class App;
}

namespace jitgemm::cli {

/// Adds `jitgemm parallel`, and the hidden subcommand that a rank's process runs.
void add_parallel(CLI::App& app);

/// What starts a rank's process.
ChildCommand rank_command(const ContextOptions& options);

}  // namespace jitgemm::cli
