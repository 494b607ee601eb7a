#include "jit/cache_entry.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/out_of_memory.hpp"
#include "util/control_character.hpp"
#include "util/hash.hpp"
#include "util/json_document.hpp"

namespace jitgemm {
namespace {

using json = JsonDocument::Json;

constexpr std::string_view magic = "jitgemm\n";
constexpr std::size_t digest_bytes = 32;

void append_little_endian(std::string& bytes, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i));
}

std::uint64_t little_endian(std::string_view bytes, std::size_t at, int width) {
  std::uint64_t value = 0;
  for (int i = 0; i < width; ++i) value |= std::uint64_t(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

std::string metadata_of(const CacheEntry& entry) {
  JsonDocument document;
  json& metadata = document.root();
  metadata["entry"] = entry.source.entry;
  metadata["architecture"] = entry.source.architecture;
  metadata["config"] = entry.source.config;
  metadata["compiler"] = entry.binary.compiler;
  metadata["registers"] = entry.binary.registers;
  metadata["spill_bytes"] = entry.binary.spill_bytes;
  metadata["static_smem_bytes"] = entry.binary.static_smem_bytes;
  return document.text();
}

/// json::get<int>() alone takes any number, also one that is no int.
int count_of(const json& value) {
  if (!value.is_number_integer() || !std::in_range<int>(value.get<std::int64_t>()) || value.get<std::int64_t>() < 0) {
    throw std::out_of_range("not a count");
  }
  return value.get<int>();
}

std::optional<CacheEntry> parse_metadata(std::string_view text) {
  try {
    const JsonDocument document(text);
    const json& metadata = document.root();
    CacheEntry entry;
    metadata.at("entry").get_to(entry.source.entry);
    metadata.at("architecture").get_to(entry.source.architecture);
    metadata.at("config").get_to(entry.source.config);
    metadata.at("compiler").get_to(entry.binary.compiler);
    for (const std::string* text :
         {&entry.source.entry, &entry.source.architecture, &entry.source.config, &entry.binary.compiler})
      if (std::any_of(text->begin(), text->end(), is_control_character))
        return std::nullopt;  // they are shown on terminals
    entry.binary.registers = count_of(metadata.at("registers"));
    entry.binary.spill_bytes = count_of(metadata.at("spill_bytes"));
    entry.binary.static_smem_bytes = count_of(metadata.at("static_smem_bytes"));
    entry.binary.entry = entry.source.entry;
    entry.binary.architecture = entry.source.architecture;
    return entry;
  } catch (const std::exception& error) {  // json's and count_of's
    if (is_out_of_memory(error)) throw;
    return std::nullopt;
  }
}

struct Lengths {
  std::size_t metadata = 0, text = 0, code = 0;
};

/// The lengths, once they are known to add up to the file's.
std::optional<Lengths> check_head(std::string_view head, std::uintmax_t file_bytes, std::string_view digest,
                                  std::string* why) {
  const auto wrong = [&](std::string what) {
    if (why != nullptr) *why = std::move(what);
    return std::nullopt;
  };
  if (!head.starts_with(magic)) return wrong(file_bytes < magic.size() ? "truncated" : "not a jitgemm kernel");
  if (head.size() < entry_head_bytes) return wrong("truncated");
  if (is_other_schema(head))
    return wrong("schema " + std::to_string(little_endian(head, 8, 4)) + " of another version");
  const std::uint64_t metadata = little_endian(head, 12, 4);
  const std::uint64_t text = little_endian(head, 16, 8);
  const std::uint64_t code = little_endian(head, 24, 8);
  if (metadata > max_metadata_bytes || text > max_entry_bytes || code > max_entry_bytes) return wrong("damaged head");
  const std::uint64_t expected = entry_head_bytes + metadata + text + code + digest_bytes;
  if (file_bytes != expected) return wrong(file_bytes < expected ? "truncated" : "longer than it says");
  if (head.substr(32, digest_bytes) != digest) return wrong("not the entry of its name");
  return Lengths{metadata, text, code};
}

}  // namespace

CacheKey cache_key(const KernelSource& source, const std::string& compiler_kind) {
  std::string text;
  for (const std::string& part :
       {std::to_string(cache_schema), compiler_kind, source.architecture, source.entry, digest_of(source.text)}) {
    text += std::to_string(part.size()) + ':' + part;  // lengths, so that no two lists of parts run together alike
  }
  return {digest_of(text)};
}

std::string pack_entry(const CacheKey& key, const CacheEntry& entry) {
  const std::string metadata = metadata_of(entry);
  std::string bytes(magic);
  bytes.reserve(entry_head_bytes + metadata.size() + entry.source.text.size() + entry.binary.code.size() +
                digest_bytes);
  append_little_endian(bytes, cache_schema, 4);
  append_little_endian(bytes, metadata.size(), 4);
  append_little_endian(bytes, entry.source.text.size(), 8);
  append_little_endian(bytes, entry.binary.code.size(), 8);
  bytes += key.digest;
  bytes += metadata;
  bytes += entry.source.text;
  bytes += entry.binary.code;
  bytes += digest_of(bytes);
  return bytes;
}

std::optional<CacheEntry> unpack_entry(std::string_view bytes, std::string_view digest, std::string* why) {
  const auto lengths = check_head(bytes, bytes.size(), digest, why);
  if (!lengths) return std::nullopt;
  const std::string_view checked = bytes.substr(0, bytes.size() - digest_bytes);
  if (digest_of(checked) != bytes.substr(checked.size())) {
    if (why != nullptr) *why = "checksum differs";
    return std::nullopt;
  }
  auto entry = parse_metadata(bytes.substr(entry_head_bytes, lengths->metadata));
  if (!entry) {
    if (why != nullptr) *why = "unreadable metadata";
    return std::nullopt;
  }
  entry->source.text = bytes.substr(entry_head_bytes + lengths->metadata, lengths->text);
  entry->binary.code = bytes.substr(entry_head_bytes + lengths->metadata + lengths->text, lengths->code);
  return entry;
}

std::optional<CacheEntry> unpack_entry_head(std::string_view head, std::uintmax_t file_bytes, std::string_view digest,
                                            std::string* why) {
  const auto lengths = check_head(head, file_bytes, digest, why);
  if (!lengths) return std::nullopt;
  auto entry = parse_metadata(head.substr(entry_head_bytes, lengths->metadata));
  if (!entry && why != nullptr) *why = "unreadable metadata";
  return entry;
}

bool is_other_schema(std::string_view head) {
  return head.size() >= entry_head_bytes && head.starts_with(magic) && little_endian(head, 8, 4) != cache_schema;
}

}  // namespace jitgemm
