#include "jit/cache_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <ctime>
#include <optional>
#include <string_view>
#include <tuple>

#include "util/atomic_file.hpp"
#include "util/directory.hpp"
#include "util/log.hpp"
#include "util/publish_step.hpp"
#include "util/trust.hpp"

namespace jitgemm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view extension = ".kernel";
constexpr std::size_t digest_letters = 32;
constexpr std::int64_t second = 1'000'000'000;  // ns
constexpr std::int64_t touch_interval = 60 * second;
constexpr std::int64_t stale_age = 3600 * second;
constexpr double usage_lock_seconds = 5;

bool is_digest(std::string_view text) {
  return text.size() == digest_letters && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::int64_t now_ns() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count();
}

std::int64_t modified_ns(const struct stat& status) {
  return std::int64_t(status.st_mtim.tv_sec) * second + status.st_mtim.tv_nsec;
}

template <typename Visit>
void each_file(const fs::path& directory, Visit visit) {
  for (const std::string& name : names_in(directory)) {
    const fs::path path = directory / name;
    struct stat status{};
    // A link is none of the library's files, but bears a name of one: it is seen, never followed.
    const bool seen = lstat(path.c_str(), &status) == 0 && (S_ISREG(status.st_mode) || S_ISLNK(status.st_mode));
    if (seen) visit(path, status);
  }
}

std::optional<std::uintmax_t> parse_sum(const std::optional<std::string>& text) {
  std::uintmax_t sum = 0;
  if (!text || text->empty() || text->back() != '\n') return std::nullopt;
  const char* const end = text->data() + text->size() - 1;
  const auto [rest, error] = std::from_chars(text->data(), end, sum);
  return error == std::errc() && rest == end ? std::optional(sum) : std::nullopt;
}

void warn_if_not_trusted(const fs::path& sum_file, const std::string& why) {
  if (errno != EPERM) return;
  warn_once("sum " + sum_file.string(), sum_file.string() + " is not used, the kernels are counted each time: " + why +
                                            "; delete it, or have its owner and mode corrected");
}

std::optional<std::uintmax_t> read_sum(const fs::path& file) {
  std::string why;
  const auto text = read_trusted(file, &why, 64);
  if (!text) warn_if_not_trusted(file, why);
  return parse_sum(text);
}

/// In place, since it follows every publication: a torn number does not parse, and then the directory is listed.
void write_sum(const fs::path& file, std::uintmax_t sum) {
  publish_step("sum");
  std::string why;
  const Descriptor descriptor = open_trusted(file, O_WRONLY | O_CREAT | O_TRUNC, &why);
  if (descriptor.get() < 0) return warn_if_not_trusted(file, why);
  if (!write_all(descriptor.get(), std::to_string(sum) + '\n')) unlink(file.c_str());
}

}  // namespace

fs::path cache_file_path(const fs::path& directory, const std::string& digest) {
  return is_digest(digest) ? directory / (digest + std::string(extension)) : fs::path();
}

fs::path cache_lock_path(const fs::path& directory, const std::string& name) { return directory / "locks" / name; }

std::vector<CacheFile> cache_files(const fs::path& directory) {
  std::vector<CacheFile> files;
  each_file(directory, [&](const fs::path& path, const struct stat& status) {
    const std::string digest = path.stem().string();
    if (path.extension() != extension || !is_digest(digest)) return;
    files.push_back({path, digest, static_cast<std::uintmax_t>(status.st_size), modified_ns(status)});
  });
  std::sort(files.begin(), files.end(), [](const CacheFile& x, const CacheFile& y) {
    return std::tie(x.last_used_ns, x.digest) < std::tie(y.last_used_ns, y.digest);
  });
  return files;
}

void touch(const fs::path& file) {
  // The time of modification: unlike that of access, reading and backing up the cache leave it alone.
  struct stat status{};
  if (lstat(file.c_str(), &status) == 0 && now_ns() - modified_ns(status) < touch_interval) return;
  const timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  utimensat(AT_FDCWD, file.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

std::uintmax_t remove_file(const CacheFile& file) { return unlink(file.path.c_str()) == 0 ? file.bytes : 0; }

std::uintmax_t sweep_stale(const fs::path& directory) {
  std::uintmax_t freed = 0;
  const std::int64_t now = now_ns();
  const auto is_stale = [&](const struct stat& status) { return now - modified_ns(status) > stale_age; };
  each_file(directory, [&](const fs::path& path, const struct stat& status) {
    if (!is_temporary_name(path.filename().string()) || !is_stale(status)) return;
    freed += remove_file({path, {}, static_cast<std::uintmax_t>(status.st_size), 0});
  });
  each_file(directory / "locks", [&](const fs::path& path, const struct stat& status) {
    if (!is_stale(status)) return;
    const FileLock lock(path, 0);
    if (lock.held()) unlink(path.c_str());
  });
  return freed;
}

std::uintmax_t hold_bound(const fs::path& directory, std::uintmax_t max_bytes, std::uintmax_t added,
                          const fs::path& keep, bool list) {
  const fs::path sum_file = directory / "bytes";
  const FileLock lock(cache_lock_path(directory, "bytes"), usage_lock_seconds);
  publish_step("count");
  if (lock.held() && !list) {
    // Errs on the safe side: an entry that replaced another, or was listed before it was added, counts twice.
    const auto sum = read_sum(sum_file);
    if (sum && *sum <= max_bytes && added <= max_bytes - *sum) {
      write_sum(sum_file, *sum + added);
      return 0;
    }
  }
  const std::vector<CacheFile> files = cache_files(directory);
  std::uintmax_t sum = 0, freed = 0;
  for (const CacheFile& file : files) sum += file.bytes;
  for (const CacheFile& file : files) {
    if (sum <= max_bytes) break;
    if (file.path == keep) continue;
    publish_step("evict");
    const std::uintmax_t bytes = remove_file(file);
    if (bytes == 0 && errno != ENOENT) continue;
    freed += bytes;
    sum -= file.bytes;
  }
  if (lock.held()) {
    write_sum(sum_file, sum);
  } else {
    unlink(sum_file.c_str());
  }
  return freed;
}

}  // namespace jitgemm
