#pragma once

#include <string>

namespace jitgemm::cli {

struct CoverOptions {
  std::string file, sizes = "8,16,24,48", list, architecture = "sm_90a";
  bool json = false;
};
/// Picks the kernels that serve a file's problems best.
void wisdom_cover(const CoverOptions& options);

}  // namespace jitgemm::cli
