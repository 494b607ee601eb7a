#include "util/hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace jitgemm {
namespace {

std::string text_of(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  text.reserve(2 * sizeof canonical.digest);
  for (const unsigned char byte : canonical.digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

std::string digest_of(std::string_view bytes) { return text_of(XXH3_128bits(bytes.data(), bytes.size())); }

struct Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;
void Hasher::add(std::string_view bytes) { XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size()); }
std::string Hasher::digest() const { return text_of(XXH3_128bits_digest(&state_->xxh)); }

}  // namespace jitgemm
