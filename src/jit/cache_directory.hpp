#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace jitgemm {

/// Of what others are to read, less the umask. For its owner alone to write, or nobody would read it: see
/// util/trust.hpp.
inline constexpr mode_t shared_directory_mode = 0755, shared_file_mode = 0644;

/// The path, absolute and without a slash at the end. Throws Error{invalid_option} that begins with `what` for one that
/// is empty or has a NUL in it.
std::filesystem::path checked_directory(const std::filesystem::path& path, const std::string& what);

/// Creates what is missing of a cache directory, for its owner only if no other mode is given. Empty, or why nothing is
/// read from or stored in it, see why_not_trusted().
std::string prepare_private_directory(const std::filesystem::path& directory, mode_t mode = 0700);

/// The same, or why this process can put no file there.
std::string why_not_writable(const std::filesystem::path& directory);

/// Why this process can read nothing there, or is not to; creates nothing.
std::string why_not_readable(const std::filesystem::path& directory);

// What the environment says of the kernel cache; an empty variable counts as none. Throw Error{invalid_option} for
// nonsense, naming the variable and what it accepts.
std::optional<std::filesystem::path> system_cache_directory();  ///< JITGEMM_SYSTEM_CACHE_DIR
std::optional<std::uintmax_t> max_cache_bytes();                ///< JITGEMM_CACHE_MAX_BYTES
bool compiler_must_match();                                     ///< JITGEMM_CACHE_COMPILER=exact; any is the default

/// system_cache_directory(), unless nothing may be read from it, of which the kernel cache warns.
std::optional<std::filesystem::path> readable_system_cache_directory();

}  // namespace jitgemm
