#include "c/versioned.hpp"

namespace jitgemm::c {
namespace {

constexpr std::size_t most_unknown_bytes = 4096;

}  // namespace

std::size_t known_bytes(std::size_t size, std::span<const std::size_t> sizes, const char* name) {
  const std::size_t newest = sizes.back();
  if (std::find(sizes.begin(), sizes.end(), size) != sizes.end()) return size;
  if (size > newest && size - newest <= most_unknown_bytes && size % sizeof(std::size_t) == 0) return newest;
  refuse(JITGEMM_STATUS_INVALID_ARGUMENT, std::string(name) + " has the size " + std::to_string(size) +
                                              ", which is that of no version; call " + name + "_init() first");
}

void check_kept(const void* value, const void* defaults, std::size_t known, std::size_t size, const char* name) {
  const char *const bytes = static_cast<const char*>(value), *const usual = static_cast<const char*>(defaults);
  if (std::equal(bytes + known, bytes + size, usual + known)) return;
  refuse(JITGEMM_STATUS_INVALID_ARGUMENT, std::string(name) + " of this program has " + std::to_string(known) +
                                              " bytes, too few for a field that was added later; compile the " +
                                              "program with the header of jitgemm " + JITGEMM_VERSION);
}

void check_unknown(const void* given, std::size_t size, std::span<const std::size_t> sizes, const char* name) {
  const char* const bytes = static_cast<const char*>(given);
  if (std::all_of(bytes + sizes.back(), bytes + size, [](char byte) { return byte == 0; })) return;
  refuse(JITGEMM_STATUS_INVALID_ARGUMENT, std::string(name) + " has set what comes after its first " +
                                              std::to_string(sizes.back()) +
                                              " bytes, of which this version of the library knows nothing; leave it " +
                                              "0, or use a newer library than " + JITGEMM_VERSION);
}

}  // namespace jitgemm::c
