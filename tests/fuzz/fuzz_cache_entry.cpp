// One file of the kernel cache. The first byte chooses how much of it is the input's: all of it; all but a right
// checksum; or metadata and a text, in an entry that is right otherwise.
#include "fuzz.hpp"
#include "jit/cache_entry.hpp"
#include "util/hash.hpp"

using namespace jitgemm;

namespace {

const std::string digest = "00112233445566778899aabbccddeeff";

void append(std::string& bytes, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) bytes += char(value >> (8 * i));
}

std::string entry_of(std::string_view metadata, std::string_view text) {
  std::string bytes = "jitgemm\n";
  append(bytes, cache_schema, 4);
  append(bytes, metadata.size(), 4);
  append(bytes, text.size(), 8);
  append(bytes, 0, 8);
  bytes += digest;
  bytes += metadata;
  bytes += text;
  return bytes;
}

void check(std::string_view bytes) {
  std::string why;
  const auto entry = unpack_entry(bytes, digest, &why);
  fuzz::expect(entry || !why.empty(), "a refused entry has a reason");
  why.clear();
  const auto head =
      unpack_entry_head(bytes.substr(0, entry_head_bytes + max_metadata_bytes), bytes.size(), digest, &why);
  fuzz::expect(head || !why.empty(), "a refused head has a reason");
  if (!entry) return;
  fuzz::expect(head.has_value(), "the head of a whole entry is good");
  fuzz::expect(!is_other_schema(bytes), "a whole entry is of this schema");
  const std::string packed = pack_entry({digest}, *entry);
  const auto again = unpack_entry(packed, digest, nullptr);
  fuzz::expect(again && pack_entry({digest}, *again) == packed, "what is packed unpacks to the same");
  fuzz::expect(again->source.text == entry->source.text && again->binary.code == entry->binary.code,
               "text and code are kept");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes input(data, size);
  const int mode = input.take<std::uint8_t>() % 3;
  std::string bytes(input.rest());
  if (mode == 2) {
    const std::string_view rest = input.rest();
    const std::size_t cut = std::min(rest.find('\n'), rest.size());
    bytes = entry_of(rest.substr(0, cut), rest.substr(std::min(cut + 1, rest.size())));
  }
  if (mode > 0) bytes += digest_of(bytes);
  check(bytes);
  return 0;
}
