#include "util/errno_text.hpp"

#include <cerrno>
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

bool is_out_of_descriptors(int error) { return error == EMFILE || error == ENFILE; }
bool is_out_of_descriptors(const std::string& why) { return why == errno_text(EMFILE) || why == errno_text(ENFILE); }

}  // namespace jitgemm
