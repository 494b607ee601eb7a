#pragma once

#include <optional>
#include <string>

namespace jitgemm {

/// What an environment variable holds; an empty one counts as none. In a program that runs with more rights than who
/// started it (set-uid, set-gid, file capabilities) there are none: they would name compilers and kernels for it to
/// run.
std::optional<std::string> environment(const char* name);

}  // namespace jitgemm
