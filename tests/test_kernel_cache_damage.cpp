// Damaged and foreign files in the place of the kernel cache's entries.
#include "cache_samples.hpp"
#include "catch.hpp"
#include "jit/cache_entry.hpp"
#include "util/hash.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
namespace fs = std::filesystem;

namespace {

/// Puts `bytes` in the place of an entry: that must count as absent, be reported once, be replaced, and touch no other.
void check_replaced(KernelCache& cache, const fs::path& directory, const CacheEntry& entry, const CacheEntry& other,
                    const std::string& bytes) {
  const fs::path file = file_of(directory, entry);
  write_file(file, bytes);
  REQUIRE(ask(cache, entry));
  REQUIRE_FALSE(ask(cache, entry));
  REQUIRE_FALSE(ask(cache, other));
}

}  // namespace

TEST_CASE("an entry with any byte flipped is dropped and built again", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CapturedLog log;
  const CacheEntry entry = sample_entry("a"), other = sample_entry("other");
  ask(cache, entry), ask(cache, other);
  const std::string good = file_text(file_of(directory.path(), entry));
  const std::string digest = key_of(entry).digest;
  const std::size_t text_begin = good.find(entry.source.text);
  REQUIRE(equal(unpack_entry(good, digest, nullptr).value(), entry));

  // Every bit of every byte on its own, then through the whole path for each byte of head, metadata and checksum, and
  // samples of text and code.
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      if (unpack_entry(bad, digest, nullptr)) FAIL("bit " << bit << " of byte " << at);
    }
  }
  for (std::size_t at = 0; at < good.size(); at += at < text_begin || at >= good.size() - 33 ? 1 : 41) {
    INFO("byte " << at);
    std::string bad = good;
    bad[at] = static_cast<char>(~bad[at]);
    check_replaced(cache, directory.path(), entry, other, bad);
  }
  CHECK(log.count("checksum differs") == 1);  // one warning a cause and file, not one a flip
  CHECK(cache.list(true).size() == 2);
}

TEST_CASE("who only asks for an entry leaves a damaged one to who replaces it", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CapturedLog log;
  const CacheEntry entry = sample_entry("a");
  ask(cache, entry);
  const fs::path file = file_of(directory.path(), entry);
  write_file(file, "damaged");
  CHECK_FALSE(cache.find(key_of(entry), {}));
  CHECK(file_text(file) == "damaged");
  CHECK(ask(cache, entry));
  CHECK(cache.find(key_of(entry), {}));
}

TEST_CASE("a truncated or lengthened entry is dropped and built again", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CapturedLog log;
  const CacheEntry entry = sample_entry("a"), other = sample_entry("other");
  ask(cache, entry), ask(cache, other);
  const std::string good = file_text(file_of(directory.path(), entry));
  for (std::size_t length = 0; length < good.size(); ++length) {
    std::string why;
    if (unpack_entry(good.substr(0, length), key_of(entry).digest, &why)) FAIL("length " << length);
    if (why != "truncated") FAIL("length " << length << " is called " << why);
  }
  for (std::size_t length = 0; length < good.size(); length += length < 300 ? 7 : 97) {
    INFO("length " << length);
    check_replaced(cache, directory.path(), entry, other, good.substr(0, length));
  }
  check_replaced(cache, directory.path(), entry, other, good.substr(0, good.size() - 1));
  check_replaced(cache, directory.path(), entry, other, good + '\0');
  check_replaced(cache, directory.path(), entry, other, good + good);
  check_replaced(cache, directory.path(), entry, other, std::string(good.size(), '\0'));
}

TEST_CASE("a foreign file in an entry's place does no harm", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CapturedLog log;
  const CacheEntry entry = sample_entry("a"), other = sample_entry("other");
  ask(cache, entry), ask(cache, other);
  const fs::path file = file_of(directory.path(), entry);
  const std::string good = file_text(file);
  const auto sealed = [](std::string bytes) {
    bytes.resize(bytes.size() - 32);
    return bytes + digest_of(bytes);
  };

  SECTION("a text") { check_replaced(cache, directory.path(), entry, other, std::string(5000, 'A')); }
  SECTION("another key's entry") {
    check_replaced(cache, directory.path(), entry, other, file_text(file_of(directory.path(), other)));
  }
  SECTION("another schema's entry") {
    std::string bytes = good;
    bytes[8] = 2;
    check_replaced(cache, directory.path(), entry, other, sealed(bytes));
  }
  SECTION("lengths that lie under a right checksum") {
    for (const std::size_t at : {12u, 16u, 24u}) {
      for (const char* lie : {"\xff\xff\xff\xff", "\xff\xff\xff\x7f", "\0\0\0\0", "\1\0\0\0"}) {
        std::string bytes = good;
        bytes.replace(at, 4, lie, 4);
        check_replaced(cache, directory.path(), entry, other, sealed(bytes));
      }
    }
    // Two lengths that overflow into the right sum.
    std::string bytes = good;
    for (const std::size_t at : {16u, 24u}) bytes[at + 7] = static_cast<char>(0x80);
    check_replaced(cache, directory.path(), entry, other, sealed(bytes));
  }
  SECTION("metadata that is no metadata under a right checksum") {
    const std::size_t begin = entry_head_bytes, end = good.find(entry.source.text);
    for (const std::string& text :
         {std::string(end - begin, '['), "{}" + std::string(end - begin - 2, ' '), std::string(end - begin, '\xff'),
          "{\"entry\":5}" + std::string(end - begin - 11, ' ')}) {
      check_replaced(cache, directory.path(), entry, other,
                     sealed(std::string(good).replace(begin, end - begin, text)));
    }
  }
  SECTION("a file of a terabyte") {
    fs::remove(file);
    write_file(file, "");
    std::error_code error;
    fs::resize_file(file, std::uintmax_t(1) << 40, error);
    if (error) WARN("no sparse file of this size here: " << error.message());
    CHECK(ask(cache, entry));
    CHECK_FALSE(ask(cache, entry));
  }
  SECTION("a FIFO, which is not waited for") {
    fs::remove(file);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    CHECK(ask(cache, entry));
    CHECK_FALSE(ask(cache, entry));
  }
  SECTION("a link to nowhere") {
    fs::remove(file);
    fs::create_symlink("nowhere", file);
    CHECK(ask(cache, entry));
    CHECK_FALSE(ask(cache, entry));
  }
  SECTION("a folder, which stays") {
    fs::remove(file);
    fs::create_directories(file / "content");
    for (int i = 0; i < 2; ++i) CHECK(ask(cache, entry));
    CHECK(log.count("cannot store") == 1);
    CHECK(cache.list(true).size() == 1);
    cache.prune(0);
    CHECK(fs::exists(file / "content"));
  }
}
