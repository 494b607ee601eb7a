#pragma once

#include <string>

namespace jitgemm {

/// What a value of errno means, in English whatever the locale is; thread-safe, unlike strerror().
std::string errno_text(int error);

/// Whether a file could not be opened because too many others are: that says nothing about the file.
bool is_out_of_descriptors(int error);
bool is_out_of_descriptors(const std::string& why);  ///< errno_text() of such an error
inline constexpr const char* more_descriptors = "close some files, or raise the limit on them (ulimit -n)";

}  // namespace jitgemm
