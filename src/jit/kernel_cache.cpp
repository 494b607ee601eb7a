#include "jit/kernel_cache.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "jit/cache_directory.hpp"
#include "jit/cache_entry.hpp"
#include "jit/cache_files.hpp"
#include "jitgemm/error.hpp"
#include "util/atomic_file.hpp"
#include "util/errno_text.hpp"
#include "util/log.hpp"
#include "util/publish_step.hpp"

namespace jitgemm {
namespace {

namespace fs = std::filesystem;

constexpr const char* way_out =
    "; make room there (JITGEMM_CACHE_MAX_BYTES) or let this user write, or name another cache directory";
constexpr const char* option_name = "the kernel cache's directory";
constexpr std::uintmax_t default_max_bytes = std::uintmax_t(1) << 30;

/// A Context without its cache would stay without it for good, though there may be descriptors again soon.
[[noreturn]] void cannot_open(const fs::path& directory, const std::string& why) {
  throw Error(ErrorCode::io, "cannot open the kernel cache " + directory.string() + ": " + why + "; " +
                                 more_descriptors + ", then try again");
}

/// `setting` is what names the directory.
std::optional<fs::path> open_writable_layer(const fs::path& directory, const std::string& setting, bool shared) {
  const std::string why = prepare_private_directory(directory, shared ? shared_directory_mode : 0700);
  if (why.empty()) return directory;
  if (is_out_of_descriptors(why)) cannot_open(directory, why);
  warn_once("no cache " + directory.string() + why,
            (directory.empty() ? "no kernel cache is" : "kernel cache " + directory.string() + " is not") +
                " used, kernels and tuning results are kept in memory only: " + why + "; set " + setting +
                " to a directory of your own that only you can write to (chmod go-w)");
  return std::nullopt;
}

std::optional<fs::path> open_system_layer(const fs::path& directory) {
  const std::string why = why_not_readable(directory);
  if (why.empty()) return directory;
  if (is_out_of_descriptors(why)) cannot_open(directory, why);
  const char* const way_out = why == errno_text(EACCES)
                                  ? "; have `jitgemm cache export` make one that others can read, or let them "
                                    "(chmod -R a+rX)"
                                  : "; make it yours or root's, for its owner alone to write (chown, chmod go-w), or "
                                    "unset JITGEMM_SYSTEM_CACHE_DIR";
  warn_once("no system cache " + directory.string(),
            "system kernel cache " + directory.string() + " is not used: " + why + way_out);
  return std::nullopt;
}

/// Whether an entry is of the compiler that there is; where there is none, it is not. Compiling says why then.
bool is_of_this_compiler(const CacheEntry& entry, const std::function<std::string()>& compiler_version) {
  try {
    return entry.binary.compiler == compiler_version();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_compiler) throw;
    return false;
  }
}

/// The entry without text and code, or nullopt with what is wrong with it. verify: reads and checks all of it.
std::optional<CacheEntry> inspect(const CacheFile& file, bool verify, std::string* why) {
  const auto bytes = verify ? read_trusted(file.path, why, max_entry_bytes)
                            : read_trusted_head(file.path, why, entry_head_bytes + max_metadata_bytes);
  if (!bytes) return std::nullopt;
  if (!verify) return unpack_entry_head(*bytes, file.bytes, file.digest, why);
  auto entry = unpack_entry(*bytes, file.digest, why);
  if (entry) entry->source.text = entry->binary.code = {};
  return entry;
}

/// Files that cannot be read, and those of other versions of the library, are left alone.
bool is_damaged(const CacheFile& file) {
  const auto bytes = read_trusted(file.path, nullptr, max_entry_bytes);
  if (!bytes) return errno == EFBIG;
  return !is_other_schema(*bytes) && !unpack_entry(*bytes, file.digest, nullptr);
}

}  // namespace

struct KernelCache::Impl {
  std::optional<fs::path> directory, system_directory;
  std::uintmax_t max_bytes = default_max_bytes;
  FileMode entry_mode;
  double lock_timeout_seconds = 0;
  bool exact_compiler = false;
  std::atomic<std::uint64_t> unkept = 0;
  std::atomic<bool> listed = false;  ///< the writable layer, by this object

  std::mutex mutex;
  std::set<fs::path> refused;  ///< files to pass over that could not be removed

  /// drop: removes a damaged file. Only to be done by who replaces it next, or it may hit another's replacement.
  std::optional<CacheEntry> read(const fs::path& path, const std::string& digest, bool drop);
  std::optional<CacheEntry> find(const CacheKey& key, const std::function<std::string()>& compiler_version, bool drop);
  void discard(const fs::path& path, const std::string& digest, const std::string& why);
  void publish(const CacheKey& key, const CacheEntry& entry) noexcept;
  bool put(const fs::path& path, std::string_view bytes, std::string* why);
};

void KernelCache::Impl::discard(const fs::path& path, const std::string& digest, const std::string& why) {
  warn_once("discard " + path.string() + why, "kernel cache entry " + path.string() + " is dropped: " + why);
  const bool writable = directory && path == cache_file_path(*directory, digest);
  if (writable && (unlink(path.c_str()) == 0 || errno == ENOENT)) return;
  const std::lock_guard lock(mutex);
  refused.insert(path);
}

std::optional<CacheEntry> KernelCache::Impl::read(const fs::path& path, const std::string& digest, bool drop) {
  {
    const std::lock_guard lock(mutex);
    if (refused.contains(path)) return std::nullopt;
  }
  std::string why;
  const auto bytes = read_trusted(path, &why, max_entry_bytes);
  if (!bytes && errno == ENOENT) return std::nullopt;
  if (!bytes && errno != EFBIG) {  // says nothing about the entry
    warn_once(
        "read " + path.string() + why,
        "kernel cache entry " + path.string() + " cannot be read: " + why + "; the kernel is compiled, " +
            (is_out_of_descriptors(why) ? more_descriptors : "correct the file's owner and permissions or delete it"));
    return std::nullopt;
  }
  if (bytes) {
    if (auto entry = unpack_entry(*bytes, digest, &why)) return entry;
  } else {
    why = "larger than any kernel";
  }
  if (drop) discard(path, digest, why);
  return std::nullopt;
}

std::optional<CacheEntry> KernelCache::Impl::find(const CacheKey& key,
                                                  const std::function<std::string()>& compiler_version, bool drop) {
  for (const auto& layer : {directory, system_directory}) {
    const fs::path path = layer ? cache_file_path(*layer, key.digest) : fs::path();
    if (path.empty()) continue;
    auto entry = read(path, key.digest, drop);
    if (!entry) continue;
    if (exact_compiler && compiler_version && !is_of_this_compiler(*entry, compiler_version)) {
      logger().debug("kernel cache: {} was compiled by {}, not by this compiler", path.string(),
                     entry->binary.compiler);
      continue;
    }
    logger().debug("kernel cache: hit {}", path.string());
    if (layer == directory) touch(path);
    return entry;
  }
  return std::nullopt;
}

/// A cache that cannot store is slower, not wrong: nothing here may fail the call that compiled.
void KernelCache::Impl::publish(const CacheKey& key, const CacheEntry& entry) noexcept try {
  ++unkept;  // but for the one case below
  const fs::path path = directory ? cache_file_path(*directory, key.digest) : fs::path();
  if (path.empty()) return;
  std::string why;
  if (put(path, pack_entry(key, entry), &why)) {
    --unkept;
    return;
  }
  warn_once("publish " + directory->string(), "kernel cache " + directory->string() +
                                                  " cannot store a kernel, which is compiled again next time: " + why +
                                                  way_out);
} catch (const std::exception& error) {
  logger().warn("kernel cache: cannot store a kernel: {}", error.what());
}

bool KernelCache::Impl::put(const fs::path& path, std::string_view bytes, std::string* why) {
  const std::uintmax_t bound = std::min<std::uintmax_t>(max_bytes, max_entry_bytes);
  if (bytes.size() > bound) {
    *why = "an entry of " + std::to_string(bytes.size()) + " bytes is above the bound of " + std::to_string(bound);
    return false;
  }
  if (!write_atomically(path, bytes, why, entry_mode)) return false;
  {
    const std::lock_guard lock(mutex);
    refused.erase(path);
  }
  logger().debug("kernel cache: published {}", path.string());
  const bool list = !listed.exchange(true);
  hold_bound(*directory, max_bytes, bytes.size(), path, list);
  if (list) sweep_stale(*directory);
  return true;
}

KernelCache::KernelCache(const KernelCacheOptions& options) : impl_(std::make_shared<Impl>()) {
  impl_->exact_compiler = compiler_must_match();
  impl_->entry_mode.bits = options.shared ? shared_file_mode : 0600;
  impl_->lock_timeout_seconds = options.lock_timeout_seconds;
  impl_->max_bytes = options.max_bytes != 0 ? options.max_bytes : max_cache_bytes().value_or(default_max_bytes);
  impl_->directory = open_writable_layer(
      options.directory ? checked_directory(*options.directory, option_name) : default_cache_directory(),
      options.directory ? "cache_dir (--cache-dir)" : "JITGEMM_CACHE_DIR", options.shared);
  const auto system =
      options.system_directory ? checked_directory(*options.system_directory, option_name) : system_cache_directory();
  if (system) impl_->system_directory = open_system_layer(*system);
}

std::optional<CacheEntry> KernelCache::find(const CacheKey& key, const std::function<std::string()>& compiler_version) {
  return impl_->find(key, compiler_version, false);
}

CacheEntry KernelCache::find_or_compile(const CacheKey& key, const std::function<CacheEntry()>& compile,
                                        const std::function<std::string()>& compiler_version, bool* hit) {
  if (hit != nullptr) *hit = true;
  if (auto entry = impl_->find(key, compiler_version, false)) return *std::move(entry);
  std::optional<FileLock> lock;
  if (impl_->directory) {
    const fs::path path = cache_lock_path(*impl_->directory, key.digest);
    mkdir(impl_->directory->c_str(), 0700);  // it may have been removed meanwhile
    mkdir(path.parent_path().c_str(), 0700);
    lock.emplace(path, impl_->lock_timeout_seconds);
  }
  if (auto entry = impl_->find(key, compiler_version, true)) return *std::move(entry);
  if (hit != nullptr) *hit = false;
  publish_step("compile");
  CacheEntry entry = compile();
  impl_->publish(key, entry);
  return entry;
}

void KernelCache::store(const CacheKey& key, const CacheEntry& entry) { impl_->publish(key, entry); }

bool KernelCache::add(const CacheKey& key, std::string_view bytes) {
  std::string why = "there is no directory for it";
  const fs::path path = impl_->directory ? cache_file_path(*impl_->directory, key.digest) : fs::path();
  if (!path.empty() && unpack_entry(bytes, key.digest, &why)) {
    const auto present = read_trusted(path, nullptr, max_entry_bytes);
    if (present && unpack_entry(*present, key.digest, nullptr)) return false;
    if (impl_->put(path, bytes, &why)) return true;
  }
  throw Error(ErrorCode::io, "cannot store the kernel " + key.digest + " in the cache: " + why + way_out);
}

void KernelCache::drop(const CacheKey& key, const std::string& why) {
  for (const auto& layer : {impl_->directory, impl_->system_directory}) {
    const fs::path path = layer ? cache_file_path(*layer, key.digest) : fs::path();
    std::error_code error;
    if (!path.empty() && fs::exists(path, error)) impl_->discard(path, key.digest, why);
  }
}

std::optional<fs::path> KernelCache::directory() const { return impl_->directory; }

std::uint64_t KernelCache::unkept() const { return impl_->unkept; }

std::uintmax_t KernelCache::max_bytes() const { return impl_->max_bytes; }

std::vector<CacheEntryInfo> KernelCache::list(bool verify) {
  std::vector<CacheEntryInfo> infos;
  for (const auto& layer : {impl_->directory, impl_->system_directory}) {
    if (!layer) continue;
    const std::vector<CacheFile> files = cache_files(*layer);
    for (auto file = files.rbegin(); file != files.rend(); ++file) {
      CacheEntryInfo info{.path = file->path,
                          .digest = file->digest,
                          .state = "ok",
                          .bytes = file->bytes,
                          .last_used = file->last_used_ns / 1'000'000'000,
                          .read_only = layer != impl_->directory,
                          .entry = {}};
      if (auto entry = inspect(*file, verify, &info.state)) info.entry = *std::move(entry);
      infos.push_back(std::move(info));
    }
  }
  return infos;
}

std::uintmax_t KernelCache::prune(std::uintmax_t max_bytes) {
  if (!impl_->directory) return 0;
  std::uintmax_t freed = sweep_stale(*impl_->directory);
  for (const CacheFile& file : cache_files(*impl_->directory)) {
    if (is_damaged(file)) freed += remove_file(file);
  }
  return freed + hold_bound(*impl_->directory, max_bytes, 0, {}, true);
}

std::uintmax_t KernelCache::clear() {
  if (!impl_->directory) return 0;
  const std::uintmax_t freed = sweep_stale(*impl_->directory);
  return freed + hold_bound(*impl_->directory, 0, 0, {}, true);
}

}  // namespace jitgemm
