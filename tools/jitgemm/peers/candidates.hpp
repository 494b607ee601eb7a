#pragma once

#include <functional>
#include <string>

#include "jitgemm/problem.hpp"

namespace jitgemm::cli {

/// A peer's ways to compute one problem.
struct PeerCandidates {
  std::string program;
  int count = 0;
  std::function<void(const Operands&, int candidate)> launch;
  std::function<std::string(int candidate)> name;
};

}  // namespace jitgemm::cli
