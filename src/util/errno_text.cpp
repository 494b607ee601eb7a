#include "util/errno_text.hpp"

#include <cstring>

namespace jitgemm {

std::string errno_text(int error) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 32)
  const char* text = strerrordesc_np(error);
#else
  const char* text = std::strerror(error);
#endif
  return text ? text : "error " + std::to_string(error);
}

}  // namespace jitgemm
