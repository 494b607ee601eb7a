#pragma once

#include <string>
#include <vector>

namespace jitgemm::emulator {

struct Outcome {
  int status = 0;  ///< 128 and more: the signal that ended it, plus 128
  std::string output;
};

/// Runs a program to its end, without a shell. What it says, on standard output and error alike, goes through `log`, a
/// file; its own temporary files go to `directory`. Throws Error{no_compiler} if it cannot be started.
Outcome run_program(const std::vector<std::string>& words, const std::string& log, const std::string& directory);

/// For a process that handles the signals that end it: programs that run_program() starts from now on are in process
/// groups of their own, so that end_programs() reaches their children too.
void group_programs();

/// Kills those that run. None starts afterwards.
void end_programs();

}  // namespace jitgemm::emulator
