#pragma once

#include <string>

namespace jitgemm {

/// What a value of errno means, in English whatever the locale is; thread-safe, unlike strerror().
std::string errno_text(int error);

}  // namespace jitgemm
