#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace jitgemm {

/// What an environment variable holds; an empty one counts as none. In a program that runs with more rights than who
/// started it (set-uid, set-gid, file capabilities) there are none: they would name compilers and kernels for it to
/// run.
std::optional<std::string> environment(const char* name);

/// What environment() answers from now on where a variable is not set or there are none: for a program that has the
/// library in it and knows what its user would have to name. The process's environment stays as it is.
void set_environment_default(const std::string& name, const std::string& value);

/// Where temporary files go: TMPDIR's folder or another that the standard library knows, /tmp where it is empty.
std::filesystem::path temporary_folder(std::error_code& failed);

}  // namespace jitgemm
