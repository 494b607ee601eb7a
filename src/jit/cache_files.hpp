#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace jitgemm {

/// A file of a cache directory that bears an entry's name. Nothing is known of what is in it.
struct CacheFile {
  std::filesystem::path path;
  std::string digest;
  std::uintmax_t bytes = 0;
  std::int64_t last_used_ns = 0;  ///< since the epoch
};

/// Where the entry of a digest lies. Empty for a text that is no digest.
std::filesystem::path cache_file_path(const std::filesystem::path& directory, const std::string& digest);
std::filesystem::path cache_lock_path(const std::filesystem::path& directory, const std::string& name);

/// Least recently used first. Never throws: what cannot be listed is not there.
std::vector<CacheFile> cache_files(const std::filesystem::path& directory);

/// Marks a file as used, at most once a minute.
void touch(const std::filesystem::path& file);

/// Removes a file. The bytes freed.
std::uintmax_t remove_file(const CacheFile& file);

/// Removes what killed processes left behind over an hour ago: temporaries, and lock files that nobody holds. Bytes
/// freed.
std::uintmax_t sweep_stale(const std::filesystem::path& directory);

/// Keeps the sum of a directory's entries in a file of its own, so that publishing need not list the directory.
/// Removes the least recently used entries, but not `keep`, until the sum is at most max_bytes. Bytes freed.
/// added: bytes that the caller has just put there. list: do not believe the sum kept, for files that came by other
/// ways.
std::uintmax_t hold_bound(const std::filesystem::path& directory, std::uintmax_t max_bytes, std::uintmax_t added,
                          const std::filesystem::path& keep, bool list);

}  // namespace jitgemm
