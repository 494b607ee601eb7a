#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jitgemm/cache.hpp"
#include "jitgemm/export.hpp"

namespace jitgemm {

// Wisdom is what a machine has learned: tuning results, and compiled kernels of GPUs. It travels as one file. Each of
// these functions may throw Error; Error{io} for a file that is not there, cannot be read or is no wisdom, and then
// nothing has been changed.

/// Of the format of wisdom files.
inline constexpr std::uint32_t wisdom_version = 1;

struct WisdomKernel {
  std::string digest;        ///< see CachedKernel
  std::string architecture;  ///< "sm_90a"
  std::uint64_t bytes = 0;
  bool current = true;  ///< false: of other templates, so this version of jitgemm will not ask for it
};

/// What there is in a file or a cache, or was written to one.
struct Wisdom {
  std::string library;  ///< the version of jitgemm that wrote it
  std::vector<TuningResult> results;
  std::vector<WisdomKernel> kernels;
  // How many more there were, which are left out and never taken:
  std::size_t foreign_results = 0, foreign_kernels = 0;  ///< in another version's form, which this one cannot read
  std::size_t strange_kernels = 0;  ///< host code of the emulator's, or given out for another kernel
};

/// Which of a machine's wisdom. Empty: all.
struct WisdomSelection {
  std::optional<std::string> cache_dir = {};  ///< see Cache
  std::string architecture = {};              ///< "sm_90a": of GPUs alone, not emulated ones
  /// Of the tuning results those for which this is true, and of the kernels those that they use.
  std::function<bool(const TuningResult&)> result = {};
  bool kernels = true;  ///< false: tuning results only
};

/// What this machine knows: of the cache directory and of the system's.
JITGEMM_EXPORT Wisdom cached_wisdom(const WisdomSelection& selection = {});

/// Writes that to a file, whole or not at all, over an older one. Returns what it has written.
JITGEMM_EXPORT Wisdom export_wisdom(const std::string& file, const WisdomSelection& selection = {});

/// Reads a file whole and checks it. One named *.jsonl is a tuning database as it lies in a cache directory.
JITGEMM_EXPORT Wisdom read_wisdom(const std::string& file);

struct WisdomImportOptions {
  /// Takes kernels too, from whom you trust: they are code that runs on your GPU. Tuning results are data, and checked
  /// before use.
  bool kernels = false;
  /// See Cache. One that is named is made if need be, for all users to read: JITGEMM_SYSTEM_CACHE_DIR may name it.
  std::optional<std::string> cache_dir = {};
};

struct WisdomImport {
  /// What the files have, merged, and in numbers what of it cannot be taken.
  Wisdom wisdom;
  std::size_t results = 0, kernels = 0;  ///< taken; of the others there were as good ones, or better
  std::size_t kernels_left_out = 0;      ///< since WisdomImportOptions::kernels is false
  std::string directory;                 ///< that took them
};

/// Adds what is new, or better, to what this machine knows: of two results of a problem on a device the later counts,
/// of those of one day the faster. Takes nothing if one of the files cannot be read. Error{io} for what cannot be
/// stored, on a full disk say: what came before it has been, and the same call goes on from there.
JITGEMM_EXPORT WisdomImport import_wisdom(const std::vector<std::string>& files,
                                          const WisdomImportOptions& options = {});

/// Makes one file of several, by the same rule. Returns what it has written. The file may be one of those.
JITGEMM_EXPORT Wisdom merge_wisdom(const std::string& file, const std::vector<std::string>& from);

struct WisdomDiff {
  std::vector<TuningResult> only_a, only_b;
  std::vector<std::pair<TuningResult, TuningResult>> differ;  ///< of one problem and device, in their configurations
  std::size_t same = 0;
  std::size_t kernels_only_a = 0, kernels_only_b = 0, kernels_same = 0;
  bool equal() const { return only_a.empty() && only_b.empty() && differ.empty(); }  ///< in what they choose
};

/// Compares two files as read_wisdom() reads them.
JITGEMM_EXPORT WisdomDiff diff_wisdom(const std::string& a, const std::string& b);

}  // namespace jitgemm
