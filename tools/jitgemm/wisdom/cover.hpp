#pragma once

#include <string>
#include <vector>

namespace jitgemm::cli {

struct CoverOptions {
  std::vector<std::string> files;
  std::string sizes = "8,16,24,48", list, architecture = "sm_90a";
  bool any_types = false, measured_only = false, json = false;
};
/// Picks the kernels that serve the files' problems best.
void wisdom_cover(const CoverOptions& options);

}  // namespace jitgemm::cli
