#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace jitgemm {

/// Of what others are to read, less the umask. Never for everyone to write, or nobody may read it: see
/// why_not_readable().
inline constexpr mode_t shared_directory_mode = 0775, shared_file_mode = 0664;

/// Creates what is missing of a path. Empty, or why it cannot.
std::string make_directories(const std::filesystem::path& directory, mode_t mode);

/// Creates what is missing of a cache directory, for its owner only if no other mode is given. Empty, or why no kernel
/// may be read from or stored in it: anyone who can write there can run code as us.
std::string prepare_private_directory(const std::filesystem::path& directory, mode_t mode = 0700);

/// The same, or why this process can put no file there.
std::string why_not_writable(const std::filesystem::path& directory);

/// The same for a directory that somebody else provides, to read from.
std::string why_not_readable(const std::filesystem::path& directory);

// What the environment says of the kernel cache; an empty variable counts as none. Throw Error{invalid_option} for
// nonsense, naming the variable and what it accepts.
std::optional<std::filesystem::path> system_cache_directory();  ///< JITGEMM_SYSTEM_CACHE_DIR
std::optional<std::uintmax_t> max_cache_bytes();                ///< JITGEMM_CACHE_MAX_BYTES
bool compiler_must_match();                                     ///< JITGEMM_CACHE_COMPILER=exact; any is the default

/// system_cache_directory(), unless nothing may be read from it, of which the kernel cache warns.
std::optional<std::filesystem::path> readable_system_cache_directory();

}  // namespace jitgemm
