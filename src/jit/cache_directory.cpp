#include "jit/cache_directory.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "jit/kernel_cache.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<fs::path> absolute_path_of(const char* name) {
  const auto value = environment(name);
  if (!value) return std::nullopt;
  if (!fs::path(*value).is_absolute()) {
    throw Error(ErrorCode::invalid_option,
                std::string(name) + "=" + *value + " is not an absolute path; set it to one, or unset it");
  }
  return fs::path(*value);
}

std::optional<std::string> home() {
  if (auto value = environment("HOME")) return value;
  std::vector<char> buffer(1 << 14);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return std::nullopt;
  return found->pw_dir;
}

std::string text_of(int error) { return std::generic_category().message(error); }

}  // namespace

fs::path default_cache_directory() {
  if (auto path = absolute_path_of("JITGEMM_CACHE_DIR")) return *path;
  // The XDG specification has relative paths ignored.
  if (const auto base = environment("XDG_CACHE_HOME"); base && fs::path(*base).is_absolute()) {
    return fs::path(*base) / "jitgemm";
  }
  const auto path = home();
  return path && fs::path(*path).is_absolute() ? fs::path(*path) / ".cache" / "jitgemm" : fs::path();
}

std::string make_directories(const fs::path& directory, mode_t mode) {
  fs::path prefix;
  for (const fs::path& part : directory) {
    prefix /= part;
    if (mkdir(prefix.c_str(), mode) != 0 && errno != EEXIST) {
      const int error = errno;
      struct stat status {};
      // A parent that exists may still refuse mkdir with EROFS or EACCES.
      if (stat(prefix.c_str(), &status) != 0) return "cannot create " + prefix.string() + ": " + text_of(error);
    }
  }
  return {};
}

std::string prepare_private_directory(const fs::path& directory, mode_t mode) {
  if (std::string why = make_directories(directory, mode); !why.empty()) return why;
  struct stat link {
  }, target{};
  if (lstat(directory.c_str(), &link) != 0 || stat(directory.c_str(), &target) != 0) return text_of(errno);
  if (!S_ISDIR(target.st_mode)) return "not a directory";
  const bool foreign_link = S_ISLNK(link.st_mode) && link.st_uid != geteuid() && link.st_uid != 0;
  if (target.st_uid != geteuid() || foreign_link) return "owned by another user";
  if ((target.st_mode & S_IWOTH) != 0) return "writable by everyone";
  return {};
}

std::string why_not_writable(const fs::path& directory) {
  if (directory.empty()) return "there is no home directory";
  std::string why = prepare_private_directory(directory);
  if (why.empty() && faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) != 0) why = text_of(errno);
  return why;
}

std::string why_not_readable(const fs::path& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) return text_of(errno);
  if (!S_ISDIR(status.st_mode)) return "not a directory";
  if ((status.st_mode & S_IWOTH) != 0) return "writable by everyone";
  if (access(directory.c_str(), R_OK | X_OK) != 0) return text_of(errno);
  return {};
}

std::optional<fs::path> system_cache_directory() { return absolute_path_of("JITGEMM_SYSTEM_CACHE_DIR"); }

std::optional<fs::path> readable_system_cache_directory() {
  auto path = system_cache_directory();
  if (path && !why_not_readable(*path).empty()) path.reset();
  return path;
}

std::optional<std::uintmax_t> max_cache_bytes() {
  const auto value = environment("JITGEMM_CACHE_MAX_BYTES");
  if (!value) return std::nullopt;
  std::uintmax_t number = 0;
  const char* const end = value->data() + value->size();
  auto [rest, error] = std::from_chars(value->data(), end, number);
  int shift = 0;
  if (error == std::errc() && end - rest == 1) {
    shift = *rest == 'K' ? 10 : *rest == 'M' ? 20 : *rest == 'G' ? 30 : 0;
    if (shift != 0) ++rest;
  }
  if (error != std::errc() || rest != end || number == 0 || number > (UINTMAX_MAX >> shift)) {
    throw Error(ErrorCode::invalid_option,
                "JITGEMM_CACHE_MAX_BYTES=" + *value +
                    " is not a size; set it to a number of bytes above 0, as 500000000, 512M "
                    "or 2G");
  }
  return number << shift;
}

bool compiler_must_match() {
  const auto value = environment("JITGEMM_CACHE_COMPILER");
  if (!value || *value == "any") return false;
  if (*value == "exact") return true;
  throw Error(ErrorCode::invalid_option, "JITGEMM_CACHE_COMPILER=" + *value + " is not known; set it to any or exact");
}

}  // namespace jitgemm
