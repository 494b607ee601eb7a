#include "util/environment.hpp"

#include <cstdlib>

namespace jitgemm {

std::optional<std::string> environment(const char* name) {
  const char* value = ::secure_getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

}  // namespace jitgemm
