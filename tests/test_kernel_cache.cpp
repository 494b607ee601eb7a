#include <set>
#include <vector>

#include "cache_samples.hpp"
#include "catch.hpp"
#include "jit/cache_entry.hpp"
#include "jitgemm/error.hpp"
#include "util/atomic_file.hpp"
#include "util/hash.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
namespace fs = std::filesystem;

TEST_CASE("a published entry comes back whole, in another process too", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  CacheEntry entry = sample_entry("a", 200000);
  entry.source.config = "quotes \" and \\ and \xc3\xa9";
  CHECK_FALSE(cache.find(key_of(entry), {}));
  CHECK(ask(cache, entry));
  CHECK_FALSE(ask(cache, entry));
  CHECK(equal(cache.find(key_of(entry), {}).value(), entry));
  CHECK(wait_for(spawn([&] {
          KernelCache other = cache_at(directory.path());
          return ask(other, entry) ? 1 : 0;
        })) == 0);

  CacheEntry empty = sample_entry("empty");
  empty.source.text = empty.source.config = empty.binary.code = empty.binary.compiler = "";
  CHECK(ask(cache, empty));
  CHECK_FALSE(ask(cache, empty));
}

TEST_CASE("the key changes with all that decides what is compiled, and only with that", "[cache]") {
  const KernelSource source = sample_entry("a").source;
  const std::string digest = cache_key(source, "nvrtc").digest;
  CHECK(digest.size() == 32);
  CHECK(digest == cache_key(source, "nvrtc").digest);

  std::set<std::string> digests = {digest, cache_key(source, "g++").digest};
  for (std::string KernelSource::* part : {&KernelSource::text, &KernelSource::entry, &KernelSource::architecture}) {
    KernelSource other = source;
    other.*part += "1";
    digests.insert(cache_key(other, "nvrtc").digest);
  }
  KernelSource shifted = source;
  shifted.architecture = "sm_9", shifted.entry = "0agemm";
  digests.insert(cache_key(shifted, "nvrtc").digest);
  CHECK(digests.size() == 6);

  KernelSource renamed = source;
  renamed.config = "other splits, same text";
  CHECK(cache_key(renamed, "nvrtc").digest == digest);
}

TEST_CASE("an entry's file is laid out as its format says", "[cache]") {
  CacheEntry entry = sample_entry("a");
  entry.source.text = "text";
  entry.binary.code = "code!";
  const CacheKey key{"0123456789abcdef0123456789abcdef"};
  const std::string metadata =
      R"({"architecture":"sm_90a","compiler":"nvrtc 13.0.88","config":"config of a","entry":"gemm",)"
      R"("registers":168,"spill_bytes":8,"static_smem_bytes":1024})";
  std::string expected = std::string("jitgemm\n\1\0\0\0", 12);
  expected += static_cast<char>(metadata.size()) + std::string(3, '\0');
  expected += std::string("\4\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0", 16);
  expected += key.digest + metadata + "textcode!";
  expected += digest_of(expected);
  CHECK(pack_entry(key, entry) == expected);
  CHECK(equal(unpack_entry(expected, key.digest, nullptr).value(), entry));
}

TEST_CASE("what compile throws passes through and nothing is stored", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CacheEntry entry = sample_entry("a");
  const auto failing = [&]() -> CacheEntry { throw Error(ErrorCode::compile_failed, "no"); };
  for (int i = 0; i < 2; ++i) CHECK_THROWS_AS(cache.find_or_compile(key_of(entry), failing, {}), Error);
  CHECK(cache.list(true).empty());
  CHECK(ask(cache, entry));
}

TEST_CASE("a digest that is none finds nothing, inside or outside the directory", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path() / "cache");
  const CacheEntry entry = sample_entry("a");
  ask(cache, entry);
  fs::copy(file_of(directory.path() / "cache", entry), directory.path() / "x.kernel");
  for (const char* digest : {"", "../x", "x", "/etc/passwd"}) CHECK_FALSE(cache.find({digest}, {}));
}

TEST_CASE("the compiler's version matters only when it is asked to", "[cache]") {
  const TemporaryDirectory directory;
  const CacheEntry entry = sample_entry("a");
  const auto same = [&] { return entry.binary.compiler; };
  const auto other = [] { return std::string("nvrtc 14.0.1"); };
  const auto never = []() -> std::string { throw std::logic_error("asked for the compiler's version"); };
  {
    KernelCache cache = cache_at(directory.path());
    ask(cache, entry);
    CHECK(cache.find(key_of(entry), never));
  }
  const ScopedEnvironment exact("JITGEMM_CACHE_COMPILER", "exact");
  KernelCache cache = cache_at(directory.path());
  CHECK(cache.find(key_of(entry), same));
  CHECK_FALSE(cache.find(key_of(entry), other));
  CacheEntry newer = entry;
  newer.binary.compiler = other();
  bool hit = true;
  CHECK(equal(cache.find_or_compile(key_of(entry), [&] { return newer; }, other, &hit), newer));
  CHECK_FALSE(hit);
  CHECK(cache.find(key_of(entry), other));
  CHECK(cache.list(true).size() == 1);
}

TEST_CASE("a dropped entry is compiled again", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CacheEntry entry = sample_entry("a");
  ask(cache, entry);
  const CapturedLog log;
  cache.drop(key_of(entry), "refused by the driver");
  CHECK(log.count("refused by the driver") == 1);
  CHECK_FALSE(fs::exists(file_of(directory.path(), entry)));
  cache.drop(key_of(entry), "refused by the driver");
  CHECK(ask(cache, entry));
  CHECK_FALSE(ask(cache, entry));
}

TEST_CASE("a hit marks the entry as used, at most once a minute", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CacheEntry entry = sample_entry("a");
  const fs::path file = file_of(directory.path(), entry);
  ask(cache, entry);
  make_older(file, 30);
  const auto recently = fs::last_write_time(file);
  ask(cache, entry);
  CHECK(fs::last_write_time(file) == recently);
  make_older(file, 60);
  ask(cache, entry);
  CHECK(fs::last_write_time(file) > recently);
}

TEST_CASE("publishing holds the bound, least recently used first", "[cache]") {
  const TemporaryDirectory directory;
  std::vector<CacheEntry> entries;
  for (const char* name : {"a", "b", "c", "d"}) entries.push_back(sample_entry(name));
  const std::uintmax_t size = pack_entry(key_of(entries[0]), entries[0]).size();
  KernelCache cache = cache_at(directory.path(), 3 * size + 20);
  for (int i = 0; i < 3; ++i) {
    ask(cache, entries[i]);
    make_older(file_of(directory.path(), entries[i]), 1000 - 100 * i);
  }
  CHECK(bytes_in(directory.path()) == 3 * size);
  CHECK_FALSE(ask(cache, entries[0]));  // now the most recently used
  CHECK(ask(cache, entries[3]));
  CHECK(bytes_in(directory.path()) == 3 * size);
  CHECK_FALSE(ask(cache, entries[0]));
  CHECK_FALSE(ask(cache, entries[2]));
  CHECK_FALSE(ask(cache, entries[3]));
  CHECK_FALSE(cache.find(key_of(entries[1]), {}));

  SECTION("an entry above the bound is not stored at all") {
    const CapturedLog log;
    const CacheEntry large = sample_entry("large", 4 * size);
    for (int i = 0; i < 2; ++i) CHECK(ask(cache, large));
    CHECK(bytes_in(directory.path()) == 3 * size);
    CHECK(log.count("above the bound") == 1);
  }
  SECTION("the entry just published stays, although the others' times lie in the future") {
    for (const int i : {0, 2, 3}) make_older(file_of(directory.path(), entries[i]), -5000);
    CHECK(ask(cache, entries[1]));
    CHECK_FALSE(ask(cache, entries[1]));
    CHECK(bytes_in(directory.path()) == 3 * size);
  }
  SECTION("whatever the file says that keeps the sum") {
    for (const char* text : {"", "0", "x\n", "-1\n", "999999999999999999999999\n", "18446744073709551615\n"}) {
      INFO(text);
      write_file(directory.path() / "bytes", text);
      ask(cache, sample_entry(std::string("with ") + text));
      CHECK(bytes_in(directory.path()) <= 3 * size + 20);
    }
    fs::remove(directory.path() / "bytes");
    ask(cache, sample_entry("without it"));
    CHECK(bytes_in(directory.path()) <= 3 * size + 20);
  }
  SECTION("files that were put there by hand are seen by the next process") {
    cache.clear();
    const TemporaryDirectory elsewhere;
    KernelCache other = cache_at(elsewhere.path());
    for (int i = 0; i < 5; ++i) {
      const CacheEntry more = sample_entry("more " + std::to_string(i));
      ask(other, more);
      fs::copy(file_of(elsewhere.path(), more), directory.path());
    }
    CHECK(bytes_in(directory.path()) >= 5 * size);
    KernelCache next = cache_at(directory.path(), 3 * size + 20);
    ask(next, sample_entry("e"));
    CHECK(bytes_in(directory.path()) <= 3 * size + 20);
  }
}

TEST_CASE("list tells the facts, and verify what is wrong", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  CHECK(cache.list(true).empty());
  const CacheEntry a = sample_entry("a"), b = sample_entry("b"), c = sample_entry("c");
  ask(cache, a), ask(cache, b), ask(cache, c);
  make_older(file_of(directory.path(), a), 200);
  make_older(file_of(directory.path(), b), 100);
  std::string bytes = file_text(file_of(directory.path(), b));
  bytes[bytes.size() - 100] ^= 1;
  write_file(file_of(directory.path(), b), bytes);
  make_older(file_of(directory.path(), b), 100);
  fs::resize_file(file_of(directory.path(), c), 500);
  write_file(directory.path() / "notes.txt", "not ours");
  write_file(directory.path() / "short.kernel", "not ours either");

  const auto quick = cache.list(false), whole = cache.list(true);
  REQUIRE((quick.size() == 3 && whole.size() == 3));
  CHECK(quick[0].digest == key_of(c).digest);
  CHECK(quick[0].state == "truncated");
  CHECK(quick[0].bytes == 500);
  CHECK(quick[1].state == "ok");
  CHECK(whole[0].state == "truncated");
  CHECK(whole[1].state == "checksum differs");
  CHECK(whole[1].digest == key_of(b).digest);
  CHECK(whole[2].state == "ok");
  for (const auto& info : {quick[2], whole[2]}) {
    CHECK(info.path == file_of(directory.path(), a));
    CHECK(info.bytes == fs::file_size(info.path));
    CHECK(std::abs(info.last_used - (std::time(nullptr) - 200)) < 60);
    CHECK(info.entry.source.config == a.source.config);
    CHECK(info.entry.binary.compiler == a.binary.compiler);
    CHECK(info.entry.binary.registers == 168);
    CHECK(info.entry.source.text.empty());
    CHECK(info.entry.binary.code.empty());
  }
}

TEST_CASE("prune removes the damaged, the stale and the least recently used, and nothing else", "[cache]") {
  const TemporaryDirectory directory;
  KernelCache cache = cache_at(directory.path());
  const CacheEntry a = sample_entry("a"), b = sample_entry("b"), c = sample_entry("c"), d = sample_entry("d");
  for (const CacheEntry& entry : {a, b, c, d}) ask(cache, entry);
  const std::uintmax_t size = fs::file_size(file_of(directory.path(), a));
  make_older(file_of(directory.path(), a), 300);
  make_older(file_of(directory.path(), b), 200);

  std::string bytes = file_text(file_of(directory.path(), c));
  bytes[70] ^= 1;
  write_file(file_of(directory.path(), c), bytes);
  std::string foreign = file_text(file_of(directory.path(), d));
  foreign[8] = 2;  // the schema of a younger library
  write_file(file_of(directory.path(), d), foreign);
  const fs::path stale = file_of(directory.path(), a).string() + ".tmp-abcdef";
  const fs::path young = file_of(directory.path(), a).string() + ".tmp-ghijkl";
  write_file(stale, "12345");
  write_file(young, "12345");
  make_older(stale, 3700);
  write_file(directory.path() / "tuning.jsonl", "{}");
  make_older(directory.path() / "tuning.jsonl", 1000000);
  for (const auto& item : fs::directory_iterator(directory.path() / "locks")) make_older(item.path(), 3700);
  const fs::path held = directory.path() / "locks" / key_of(a).digest;
  REQUIRE(fs::exists(held));
  {
    const FileLock lock(held, 0);
    CHECK(cache.prune(1000000) == size + 5);
  }
  CHECK_FALSE(fs::exists(file_of(directory.path(), c)));
  CHECK_FALSE(fs::exists(stale));
  CHECK(fs::exists(young));
  CHECK(fs::exists(held));
  CHECK_FALSE(fs::exists(directory.path() / "locks" / key_of(b).digest));
  CHECK(cache.list(false).size() == 3);

  CHECK(cache.prune(2 * size) == size);
  CHECK_FALSE(fs::exists(file_of(directory.path(), a)));
  CHECK_FALSE(ask(cache, b));
  CHECK(cache.clear() == 2 * size);
  CHECK(cache.list(false).empty());
  CHECK(file_text(directory.path() / "tuning.jsonl") == "{}");
  CHECK(ask(cache, b));
}
