#pragma once

#include <filesystem>
#include <string>

namespace jitgemm::cli {

/// The text of a list that a user names, shapes or kernels, without the byte order mark that some editors put first.
/// Throws Error{io} if it cannot be read, or has more than 64 MiB, as a device does that never ends; `what`, "a file of
/// ...", is what to give instead.
std::string read_list(const std::filesystem::path& path, const std::string& what);

}  // namespace jitgemm::cli
