#pragma once

#include <string>

namespace jitgemm::cli {

/// Thrown by a command whose status means more than failure.
struct ExitStatus {
  int value;
  std::string error;  ///< empty: there is none
};

}  // namespace jitgemm::cli
