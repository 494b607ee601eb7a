#pragma once

#include <string>

#include "tune/wisdom_file.hpp"

namespace jitgemm::cli {

/// A wisdom file, or the records of a tuning database, which is what is named *.jsonl. Throws Error{io}.
Wisdom read_wisdom_or_database(const std::filesystem::path& file);

struct CoverOptions {
  std::string file, sizes = "8,16,24,48", list, architecture = "sm_90a";
  bool json = false;
};
/// Picks the kernels that serve a file's problems best.
void wisdom_cover(const CoverOptions& options);

}  // namespace jitgemm::cli
