#include "jit/cache_directory.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <system_error>
#include <vector>

#include "jit/kernel_cache.hpp"
#include "jitgemm/error.hpp"
#include "util/environment.hpp"
#include "util/errno_text.hpp"
#include "util/trust.hpp"

namespace jitgemm {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> absolute_path_of(const char* name) {
  const auto value = environment(name);
  if (!value) return std::nullopt;
  if (!fs::path(*value).is_absolute()) {
    throw Error(ErrorCode::invalid_option,
                std::string(name) + "=" + *value + " is not an absolute path; set it to one, or unset it");
  }
  return checked_directory(*value, name);
}

/// HOME, unless it is another user's, as with `sudo` that keeps it: what root leaves there its owner could not use.
std::optional<std::string> home() {
  if (auto value = environment("HOME")) {
    struct stat status{};
    const bool foreign = stat(value->c_str(), &status) == 0 && status.st_uid != geteuid() && status.st_uid != 0;
    return foreign ? std::nullopt : value;
  }
  std::vector<char> buffer(1 << 14);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return std::nullopt;
  return found->pw_dir;
}

std::string text_of(int error) { return errno_text(error); }

std::string why_no_default() {
  const auto path = home();
  return path ? "HOME=" + *path + " is not an absolute path" : "there is no home directory of this user's own";
}

}  // namespace

fs::path checked_directory(const fs::path& path, const std::string& what) {
  const auto refuse = [&](const char* why) {
    throw Error(ErrorCode::invalid_option, what + " " + why + "; give one, or leave it unset");
  };
  if (path.empty()) refuse("is an empty path");
  if (path.native().find('\0') != std::string::npos) refuse("has a NUL in it, which no path has");
  std::error_code gone;
  const fs::path whole = fs::absolute(path, gone).lexically_normal();  // the process may change its directory later
  if (gone) {
    throw Error(ErrorCode::invalid_option, what + " " + path.string() + " is relative to a working directory that is " +
                                               "not to be had (" + errno_text(gone.value()) + "); give a full path");
  }
  return whole.has_filename() ? whole : whole.parent_path();  // without a slash at the end, lstat() sees a link
}

fs::path default_cache_directory() {
  if (auto path = absolute_path_of("JITGEMM_CACHE_DIR")) return *path;
  // The XDG specification has relative paths ignored.
  if (const auto base = environment("XDG_CACHE_HOME"); base && fs::path(*base).is_absolute()) {
    return fs::path(*base) / "jitgemm";
  }
  const auto path = home();
  return path && fs::path(*path).is_absolute() ? fs::path(*path) / ".cache" / "jitgemm" : fs::path();
}

std::string prepare_private_directory(const fs::path& directory, mode_t mode) {
  if (directory.empty()) return why_no_default();
  std::string why = make_directories(directory, mode);
  if (why.empty()) why = why_not_trusted(directory);
  if (why.empty() && faccessat(AT_FDCWD, directory.c_str(), X_OK, AT_EACCESS) != 0) why = text_of(errno);
  return why;
}

std::string why_not_writable(const fs::path& directory) {
  std::string why = prepare_private_directory(directory);
  if (why.empty() && faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) != 0) why = text_of(errno);
  return why;
}

std::string why_not_readable(const fs::path& directory) {
  std::string why = why_not_trusted(directory);
  if (why.empty() && faccessat(AT_FDCWD, directory.c_str(), R_OK | X_OK, AT_EACCESS) != 0) why = text_of(errno);
  return why;
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
