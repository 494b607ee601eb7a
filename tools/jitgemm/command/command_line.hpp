#pragma once

namespace jitgemm::cli {

/// The `jitgemm` command: does what the words say, prints its results or its error, and returns the exit status.
int run_command_line(int argc, const char* const* argv);

}  // namespace jitgemm::cli
