#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernel.hpp"

namespace jitgemm {

/// What identifies an entry: schema, whole source, canonical options, exact architecture, compiler kind (not version).
struct CacheKey {
  std::string digest;  ///< XXH3-128, 32 hex digits; also the file's name
};
CacheKey cache_key(const KernelSource& source, const std::string& compiler_kind);

struct CacheEntry {
  KernelSource source;
  KernelBinary binary;
};

struct CacheEntryInfo {
  std::filesystem::path path;
  std::string digest;
  std::string state;  ///< "ok", or what is wrong with it
  std::uintmax_t bytes = 0;
  std::int64_t last_used = 0;  ///< seconds since the epoch
  bool read_only = false;      ///< of the system layer
  CacheEntry entry = {};       ///< without text and code, which find() reads; empty unless "ok"
};

struct KernelCacheOptions {
  std::optional<std::filesystem::path> directory = {};         ///< default: default_cache_directory()
  std::optional<std::filesystem::path> system_directory = {};  ///< read-only layer; default: JITGEMM_SYSTEM_CACHE_DIR
  std::uintmax_t max_bytes = 0;      ///< 0: JITGEMM_CACHE_MAX_BYTES (a number, with K, M or G behind it), else 1 GiB
  bool shared = false;               ///< what is created there is for others to read, as far as the umask allows
  double lock_timeout_seconds = 10;  ///< how long one process waits for another's compile of the same key
};

/// Compiled kernels on disk, one self-contained file an entry, shared by processes. A damaged, foreign or truncated
/// entry counts as absent and is dropped; one that others could have written (see util/trust.hpp) counts as absent,
/// with one warning; nothing readable or writable means memory only, with one warning. Thread-safe.
class KernelCache {
 public:
  /// Throws Error{invalid_option} for options or environment variables that make no sense.
  explicit KernelCache(const KernelCacheOptions& options = {});

  /// The entry, whole and checked, or nullopt. Marks it as used. `compiler_version` is compared only under
  /// JITGEMM_CACHE_COMPILER=exact and only then called; empty: any will do.
  std::optional<CacheEntry> find(const CacheKey& key, const std::function<std::string()>& compiler_version);

  /// Returns the entry, or makes it with `compile` and publishes it. Processes that ask for the same key at once
  /// compile once, as long as the compile is shorter than the lock's time limit; correctness never depends on the lock.
  /// What `compile` throws passes through and nothing is stored. `hit` tells which it was.
  CacheEntry find_or_compile(const CacheKey& key, const std::function<CacheEntry()>& compile,
                             const std::function<std::string()>& compiler_version, bool* hit = nullptr);

  /// Publishes an entry, over an older one. A cache that cannot store it warns once.
  void store(const CacheKey& key, const CacheEntry& entry);

  /// Stores an entry as another cache has packed it. False, and nothing is done, if a whole one lies here already.
  /// Throws Error{io} if it is damaged or cannot be stored.
  bool add(const CacheKey& key, std::string_view bytes);

  /// Forgets an entry that the driver refused to load, with a warning.
  void drop(const CacheKey& key, const std::string& why);

  /// Of the entries to publish, by this object, those that could not be stored.
  std::uint64_t unkept() const;

  std::optional<std::filesystem::path> directory() const;  ///< nullopt: memory only
  std::uintmax_t max_bytes() const;                        ///< bound on the entries of directory()
  /// Both layers, the writable one first, most recently used first. verify: reads each file whole.
  std::vector<CacheEntryInfo> list(bool verify);
  /// Least recently used first, down to max_bytes; damaged and stale files too. Returns the bytes freed.
  std::uintmax_t prune(std::uintmax_t max_bytes);
  std::uintmax_t clear();  ///< all entries of the writable layer; bytes freed

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// The directory that the environment names, existing or not: JITGEMM_CACHE_DIR, else $XDG_CACHE_HOME/jitgemm, else
/// ~/.cache/jitgemm; empty for a user without a home of its own. Also the home of the tuning database.
/// Throws Error{invalid_option} when JITGEMM_CACHE_DIR is not an absolute path.
std::filesystem::path default_cache_directory();

}  // namespace jitgemm
