#include "util/hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace jitgemm {

std::string digest_of(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  std::string text;
  text.reserve(2 * sizeof canonical.digest);
  for (const unsigned char byte : canonical.digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace jitgemm
