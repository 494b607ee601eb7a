// Wisdom that is damaged, and what cannot be written.
#include <csignal>
#include <functional>

#include "catch.hpp"
#include "errors.hpp"
#include "random.hpp"
#include "util/hash.hpp"
#include "util/publish_step.hpp"
#include "wisdom_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// What keeps a file from being read, written or imported.
std::string io_error(const std::function<void()>& work) { return refusal(ErrorCode::io, work); }

std::string sealed(std::string bytes) {
  bytes.resize(bytes.size() - 32);
  return bytes + digest_of(bytes);
}

}  // namespace

TEST_CASE("Wisdom with any byte flipped or cut short anywhere is refused and changes nothing", "[wisdom]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "file";
  const std::string good = sample_wisdom(directory.path());
  Home home(directory.path() / "home");
  home.db.add(record_of(first, 64));
  const auto before = contents(home.directory);
  const auto refused = [&](const std::string& bytes) {
    write_file(file, bytes);
    const std::string error = io_error([&] { home.import_from(file); });
    return ContainsSubstring("cannot read the wisdom in " + file.string()).match(error) &&
           ContainsSubstring("; ").match(error) && !ContainsSubstring("\n").match(error);
  };
  Random random(1);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    if (!refused(bad)) FAIL("byte " << at);
    bad[at] = static_cast<char>(~good[at]);
    if (!refused(bad)) FAIL("byte " << at);
  }
  for (std::size_t length = 0; length < good.size(); ++length) {
    if (!refused(good.substr(0, length))) FAIL("length " << length);
  }
  CHECK(refused(good + '\0'));
  CHECK(refused(good + good));
  CHECK(refused(std::string(good.size(), '\0')));
  CHECK(refused(file_text(home.directory / "tuning.jsonl")));
  CHECK(refused(file_text(file_of(directory.path() / "sample", sample_entry("a", 300)))));
  CHECK(contents(home.directory) == before);
  write_file(file, good);
  CHECK(io_error([&] {
          take_wisdom({read_wisdom_file(file), read_wisdom_file(directory.path() / "none")}, home.db, home.cache,
                      Kernels::take);
        }).find("No such file") != std::string::npos);
  CHECK_THAT(io_error([&] { read_wisdom_file(directory.path()); }), ContainsSubstring("cannot read the wisdom"));
  CHECK(contents(home.directory) == before);
  CHECK(home.import_from(file).kernels == 2);
}

TEST_CASE("Wisdom that is whole but not what it says is refused with the reason", "[wisdom]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "file";
  const std::string good = sample_wisdom(directory.path());
  const auto why = [&](std::string bytes) {
    write_file(file, sealed(std::move(bytes)));
    return io_error([&] { read_wisdom_file(file); });
  };
  const auto replaced = [&](const std::string& word, const std::string& by) {
    std::string bytes = good;
    bytes.replace(bytes.find(word), word.size(), by);
    return why(bytes);
  };
  REQUIRE(why(good).empty());
  std::string newer = good;
  newer[8] = 2;
  CHECK_THAT(why(newer), ContainsSubstring("of format 2") && ContainsSubstring("update jitgemm"));
  CHECK_THAT(replaced("\"records\":2", "\"records\":3"), ContainsSubstring("not as many"));
  CHECK_THAT(replaced("\"records\":2", "\"recards\":2"), ContainsSubstring("manifest"));
  CHECK_THAT(replaced("\"bytes\":", "\"bytes\":-"), ContainsSubstring("it is longer"));
  CHECK_THAT(replaced("12.5", "-2.5"), ContainsSubstring("record") && ContainsSubstring("not a time"));
  CHECK_THAT(replaced("ELF", "elf"), ContainsSubstring("checksum differs"));  // the kernel's own
  CHECK_THAT(replaced("\"schema\":3", "\"schema\":7"), ContainsSubstring("") && !ContainsSubstring("none"));
  write_file(file, sealed(std::string(good).replace(good.find("\"schema\":3"), 10, "\"schema\":7")));
  CHECK(read_wisdom_file(file).foreign_records == 1);
  CHECK(read_wisdom_file(file).records.size() == 1);

  std::string other_schema = good;
  other_schema[good.find("jitgemm\n") + 8] = 9;
  write_file(file, sealed(other_schema));
  CHECK(read_wisdom_file(file).foreign_kernels == 1);
  CHECK(read_wisdom_file(file).kernels.size() == 1);
}

TEST_CASE("A kernel that has changed since it was listed is not carried on", "[wisdom]") {
  const TemporaryDirectory directory;
  sample_wisdom(directory.path());
  Home home(directory.path() / "sample");
  const StoredWisdom wisdom = home.collect();
  const fs::path entry = file_of(home.directory, sample_entry("a", 300)), out = directory.path() / "out";
  std::string bytes = file_text(entry);
  bytes[200] ^= 1;
  write_file(entry, bytes);
  CHECK_THAT(io_error([&] { write_wisdom_file(out, wisdom.records, wisdom.kernels); }),
             ContainsSubstring("checksum differs"));
  CHECK_FALSE(fs::exists(out));
  CHECK(home.collect().kernels.size() == 1);  // a new list leaves it out
}

TEST_CASE("What cannot be written is an error that says so, and leaves no half of a file", "[wisdom]") {
  const TemporaryDirectory directory;
  sample_wisdom(directory.path());
  const fs::path sample = directory.path() / "sample.wisdom";
  SECTION("into a folder that is not there") {
    const fs::path out = directory.path() / "none" / "out";
    CHECK_THAT(io_error([&] { write_wisdom_file(out, {}, {}); }), ContainsSubstring("cannot write " + out.string()));
  }
  SECTION("import into a directory that is a file") {
    write_file(directory.path() / "file", "");
    const CapturedLog log;
    Home home(directory.path() / "file");
    CHECK_THAT(io_error([&] { home.import_from(sample); }), ContainsSubstring("JITGEMM_CACHE_DIR"));
  }
  SECTION("import of more than the cache may have") {
    KernelCache small = cache_at(directory.path() / "small", 600);
    TuningDb db(directory.path() / "small" / "tuning.jsonl");
    CHECK_THAT(io_error([&] { take_wisdom({read_wisdom_file(sample)}, db, small, Kernels::take); }),
               ContainsSubstring("JITGEMM_CACHE_MAX_BYTES"));
    CHECK(db.records().empty());
    CHECK(small.list(false).empty());
  }
  SECTION("import into a read-only file system") {
    const fs::path target = directory.path() / "target";
    fs::create_directory(target);
    const int status = wait_for(spawn([&] {
      mount_tmpfs(target, 1 << 20);
      Home(target).db.add(record_of(first, 64));
      const auto before = contents(target);
      remount_read_only(target);
      const CapturedLog log;
      Home home(target);
      const std::string error = io_error([&] { home.import_from(sample); });
      expect(error.find("cannot") != std::string::npos && error.find("; ") != std::string::npos, error.c_str());
      expect(contents(target) == before, "nothing has changed");
      return 0;
    }));
    if (status == not_allowed) SKIP("mounts are not allowed here");
    CHECK(status == 0);
  }
  SECTION("a full disk") {
    const fs::path target = directory.path() / "target", big = directory.path() / "big.wisdom";
    Home source(directory.path() / "source");
    for (int i = 0; i < 8; ++i) {
      const CacheEntry entry = sample_entry(std::to_string(i), 20000);
      source.cache.store(key_of(entry), entry);
    }
    source.db.add(record_of(first));
    source.export_to(big);
    fs::create_directory(target);
    const int status = wait_for(spawn([&] {
      mount_tmpfs(target, 100000);
      std::string error = io_error([&] { source.export_to(target / "out"); });
      expect(error.find("No space left") != std::string::npos, error.c_str());
      expect(fs::is_empty(target), "nothing is left of it");

      Home home(target);
      error = io_error([&] { home.import_from(big); });
      expect(error.find("No space left") != std::string::npos && error.find("make room") != std::string::npos,
             error.c_str());
      const std::size_t stored = home.cache.list(true).size();
      expect(stored > 0 && stored < 8, "what fitted is there");
      for (const auto& info : home.cache.list(true)) expect(info.state == "ok", "and whole");
      expect(home.db.records().size() == 1, "as is the record");
      return 0;
    }));
    if (status == not_allowed) SKIP("mounts are not allowed here");
    CHECK(status == 0);
  }
}

TEST_CASE("A process killed at any step of an export leaves the old file or the new one", "[wisdom]") {
  const TemporaryDirectory directory;
  const std::string bytes = sample_wisdom(directory.path());
  const fs::path out = directory.path() / "out";
  static int steps_left;
  bool finished = false;
  for (int step = 0; !finished; ++step) {
    write_file(out, "old");
    const int status = wait_for(spawn([&] {
      steps_left = step;
      publish_hook = [](const char*) {
        if (steps_left-- == 0) kill(getpid(), SIGKILL);
      };
      Home(directory.path() / "sample").export_to(out);
      return 0;
    }));
    const std::string now = file_text(out);
    if (now != "old" && now != bytes) FAIL("half a file at step " << step);
    finished = status == 0;
    if (finished) CHECK(now == bytes);
    CHECK((finished || status == -SIGKILL));
  }
}
