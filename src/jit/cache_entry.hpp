#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jit/kernel_cache.hpp"

namespace jitgemm {

// An entry is one file, numbers little-endian:
//
//     at   bytes
//      0       8  magic "jitgemm\n"
//      8       4  schema
//     12       4  length of the metadata
//     16       8  length of the source text
//     24       8  length of the code
//     32      32  key digest, hex
//     64          metadata (JSON), source text, code
//    end-32   32  XXH3-128 of everything before it, hex

inline constexpr std::uint32_t cache_schema = 1;
inline constexpr std::size_t entry_head_bytes = 64;
inline constexpr std::size_t max_metadata_bytes = 1 << 16;
inline constexpr std::size_t max_entry_bytes = 1 << 28;

std::string pack_entry(const CacheKey& key, const CacheEntry& entry);

/// The whole entry, checked, or nullopt with what is wrong in *why. Trusts nothing in `bytes`.
std::optional<CacheEntry> unpack_entry(std::string_view bytes, std::string_view digest, std::string* why);

/// The same from the first entry_head_bytes + max_metadata_bytes of a file of file_bytes: facts without text and code,
/// no checksum.
std::optional<CacheEntry> unpack_entry_head(std::string_view head, std::uintmax_t file_bytes, std::string_view digest,
                                            std::string* why);

/// An entry of a younger or older library, which only that one can judge.
bool is_other_schema(std::string_view head);

}  // namespace jitgemm
