#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <filesystem>
#include <string>

#include "util/descriptor.hpp"

namespace jitgemm {

// What lies in a cache directory is run, or steers what is. So it must come from this user or from root, and nobody
// else may be able to change it: neither the file nor the directory that it lies in. All that is read from and written
// to such a directory is opened here. An access control list that lets others write shows in the group's bits.

/// Empty if a file or directory is this user's or root's and only its owner can write to it, else why it is not used.
std::string why_not_trusted(const struct stat& status);

/// The same of the directory at a path, as it is now; also why it cannot be opened. It may be a link of this user's or
/// of root's.
std::string why_not_trusted(const std::filesystem::path& directory);

/// The directory, to open files in. Below 0, with errno and the reason in *why, if it cannot be had or trusted (EPERM).
Descriptor open_trusted_directory(const std::filesystem::path& directory, std::string* why);

/// A regular file in such a directory, opened as open(2) does, closed on exec. Below 0, with errno and the reason in
/// *why, if it cannot be had, or is a link, no regular file or not to be trusted (EPERM); it is then as it was before.
Descriptor open_trusted(const std::filesystem::path& file, int flags, std::string* why, mode_t mode = 0600);

/// Creates what is missing of a path. Empty, or why it cannot.
std::string make_directories(const std::filesystem::path& directory, mode_t mode);

}  // namespace jitgemm
