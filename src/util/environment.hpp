#pragma once

#include <optional>
#include <string>

namespace jitgemm {

/// What an environment variable holds; an empty one counts as none. In a program that runs with more rights than who
/// started it (set-uid, set-gid, file capabilities) there are none: they would name compilers and kernels for it to
/// run.
std::optional<std::string> environment(const char* name);

/// What environment() answers from now on where a variable is not set or there are none: for a program that has the
/// library in it and knows what its user would have to name. The process's environment stays as it is.
void set_environment_default(const std::string& name, const std::string& value);

}  // namespace jitgemm
