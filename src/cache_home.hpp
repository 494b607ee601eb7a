#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "jit/kernel_cache.hpp"
#include "tune/tuning_db.hpp"

namespace jitgemm {

/// A cache directory to look after, and the system's under it.
struct CacheHome {
  std::filesystem::path wanted;  ///< what was asked for, whether it can be used or not
  bool named = false;            ///< by an option, not by the environment
  KernelCache kernels;
  TuningDb results;

  /// Of both directories. Throws Error{io} if the own one's cannot be read.
  std::vector<TuningRecord> records();
  /// The directory that can be written to. Throws Error{io} if only the system's can be used.
  std::filesystem::path own() const;
};

/// To read, and to remove from: a directory that is named must be there. Throws Error{io} if there is nothing to read.
CacheHome open_home(const std::optional<std::string>& cache_dir);

/// To add to: one that is named is made if need be, and what is created in it is for others to read. Throws Error{io}
/// if it cannot be used.
CacheHome open_home_to_fill(const std::optional<std::string>& cache_dir);

}  // namespace jitgemm
