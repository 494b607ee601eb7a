#include "cache_home.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "jit/cache_directory.hpp"
#include "jitgemm/error.hpp"
#include "util/errno_text.hpp"
#include "util/trust.hpp"

namespace jitgemm {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_use(const fs::path& directory, bool named, const std::string& why) {
  const std::string setting = named ? "cache_dir (--cache-dir)" : "JITGEMM_CACHE_DIR";
  throw Error(ErrorCode::io,
              (directory.empty() ? "no cache directory can" : "the cache directory " + directory.string() + " cannot") +
                  " be used: " + why + "; " +
                  (is_out_of_descriptors(why)
                       ? more_descriptors
                       : "set " + setting + " to a directory of your own that only you can write to (chmod go-w)"));
}

std::string why_not_usable(const fs::path& directory, mode_t mode) {
  std::string why = prepare_private_directory(directory, mode);
  return why.empty() ? why_not_readable(directory) : why;
}

bool is_missing(const fs::path& path) {
  struct stat status{};
  return stat(path.c_str(), &status) != 0 && errno == ENOENT;
}

fs::path directory_of(const std::optional<std::string>& cache_dir) {
  return cache_dir ? checked_directory(*cache_dir, "cache_dir") : default_cache_directory();
}

CacheHome open(const fs::path& directory, bool named, bool shared) {
  KernelCache kernels({.directory = named ? std::optional(directory) : std::nullopt, .shared = shared});
  std::optional<fs::path> own, system;
  if (const auto usable = kernels.directory()) own = *usable / tuning_db_name;
  if (const auto usable = readable_system_cache_directory()) system = *usable / tuning_db_name;
  return {directory, named, std::move(kernels), TuningDb(own, system, shared ? shared_file_mode : 0600)};
}

}  // namespace

std::vector<TuningRecord> CacheHome::records() {
  if (const auto directory = kernels.directory()) {
    const fs::path file = *directory / tuning_db_name;
    std::string why;
    if (open_trusted(file, O_RDONLY, &why).get() < 0 && errno != ENOENT) {
      throw Error(ErrorCode::io, "the tuning results in " + file.string() + " are not used: " + why + "; " +
                                     (is_out_of_descriptors(why) ? more_descriptors
                                                                 : "correct the file's owner and permissions, or name "
                                                                   "another cache directory"));
    }
  }
  return results.records();
}

fs::path CacheHome::own() const {
  if (auto directory = kernels.directory()) return *std::move(directory);
  cannot_use(wanted, named, why_not_writable(wanted));
}

CacheHome open_home(const std::optional<std::string>& cache_dir) {
  const fs::path directory = directory_of(cache_dir);
  if (cache_dir && is_missing(directory)) {
    throw Error(ErrorCode::io, "there is no cache directory " + directory.string() +
                                   ": correct cache_dir (--cache-dir), or `jitgemm warm` it");
  }
  const std::string why = why_not_usable(directory, 0700);
  if (!why.empty() && (cache_dir || !readable_system_cache_directory()))
    cannot_use(directory, cache_dir.has_value(), why);
  return open(directory, cache_dir.has_value(), false);
}

CacheHome open_home_to_fill(const std::optional<std::string>& cache_dir) {
  const fs::path directory = directory_of(cache_dir);
  const std::string why = why_not_usable(directory, cache_dir ? shared_directory_mode : 0700);
  if (!why.empty()) cannot_use(directory, cache_dir.has_value(), why);
  return open(directory, cache_dir.has_value(), cache_dir.has_value());
}

}  // namespace jitgemm
