#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace jitgemm {

/// The names in a directory, without "." and ".."; none if it cannot be listed. Instead of fs::directory_iterator,
/// whose constructor in libstdc++ ends the process where there is no memory: here that is std::bad_alloc.
std::vector<std::string> names_in(const std::filesystem::path& directory);

}  // namespace jitgemm
