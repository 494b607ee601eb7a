// What commands say where nothing can be kept, and the files that they leave to others.
#include <sys/stat.h>

#include "cache_samples.hpp"
#include "catch.hpp"
#include "command.hpp"

namespace jitgemm::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

const std::string small = " -m 70 -n 66 -k 65 --device emulator ";

/// Quick to tune: few kernels serve it.
const std::string quick = " --type f64 --device emulator --arch sm_80 ";

int mode_of(const fs::path& path) { return int(fs::status(path).permissions()); }

int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

/// Status 1, and one error that has these words in it.
void check_error(const Output& output, std::initializer_list<const char*> words) {
  INFO(output.out << output.err);
  CHECK(output.status == 1);
  CHECK(count_of(output.err, "jitgemm: error: ") == 1);
  for (const char* word : words) CHECK_THAT(output.err, ContainsSubstring(word));
}

}  // namespace

TEST_CASE("A command that could keep nothing says so and fails", "[cli][output_commands]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("file"), "");
  write_file(jitgemm.path("shapes.txt"), "32 32 8\n");
  const std::string nowhere = " --cache-dir file/cache ";
  check_error(jitgemm("warm" + small + nowhere), {"1 of 1 kernel compiled, but not kept in ", "Not a directory; "});
  check_error(jitgemm("tune --shapes shapes.txt" + quick + nowhere),
              {"no result could be kept in ", "Not a directory; "});
  check_error(jitgemm("tune -m 32 -n 32 -k 8" + quick + nowhere), {"no result could be kept in "});
  for (const std::string command : {"cache clear --json", "cache clear", "cache prune"})
    check_error(jitgemm(command + nowhere), {"file/cache cannot be used: ", "Not a directory; "});
  check_error(jitgemm("wisdom export out.wisdom" + nowhere), {"file/cache cannot be used: ", "Not a directory; "});
  CHECK_FALSE(fs::exists(jitgemm.path("out.wisdom")));
  CHECK(jitgemm("run" + small + nowhere).status == 0);  // it goes on without a cache
}

TEST_CASE("A read-only cache loses nothing, and who would change it hears so", "[cli][output_commands]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const fs::path cache = jitgemm.path("cache");
  fs::create_directory(cache);
  write_file(jitgemm.path("shapes.txt"), "32 32 8\n");
  const int status = wait_for(spawn([&] {
    mount_tmpfs(cache, 8 << 20);
    expect(jitgemm("warm" + small).status == 0, "it is writable at first");
    const fs::path entry = std::string(jitgemm("cache ls --json").json()[0]["path"]);
    const auto expect_error = [&](const std::string& command, const char* word) {
      const Output output = jitgemm(command);
      const std::string all = command + ": " + output.out + output.err;
      expect(output.status == 1, all.c_str());
      expect(count_of(output.err, "jitgemm: error: ") == 1, all.c_str());
      const std::string error = lines_of(output.err).back();  // the cache may have warned before
      expect(count_of(error, "Read-only file system; ") == 1 && count_of(error, word) == 1, all.c_str());
    };
    remount_read_only(cache);
    expect_error("cache clear", "cannot be removed");
    expect_error("cache prune --max-bytes 1", "cannot be removed");
    expect(jitgemm("cache prune").status == 0, "nothing is damaged, so nothing was to go");
    expect(fs::exists(entry), "it is still there");
    expect(jitgemm("warm" + small).status == 0, "it has this kernel");
    expect_error("warm -m 32 -n 32 -k 8" + quick, "not kept");
    expect_error("tune --shapes shapes.txt" + quick, "no result could be kept");
    expect(jitgemm("wisdom export out.wisdom").status == 0, "it can be read");
    return 0;
  }));
  if (status == not_allowed) SKIP("mounts are not allowed here");
  CHECK(status == 0);
}

TEST_CASE("A kernel that the cache has no room for is not called warm", "[cli][output_commands]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const ScopedEnvironment bound("JITGEMM_CACHE_MAX_BYTES", "100");
  check_error(jitgemm("warm" + small), {"1 of 1 kernel compiled, but not kept in ", "above the bound of 100"});
}

TEST_CASE("jitgemm bench writes to a device, and continues only a file", "[cli][output_commands]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "32 32 8\n");
  fs::create_symlink("/dev/null", jitgemm.path("null"));
  fs::create_directory(jitgemm.path("folder"));
  const std::string bench = "bench --frozen --shapes shapes.txt" + quick;
  for (const std::string file : {"null", "folder"})
    check_error(jitgemm(bench + "--csv " + file), {"is no regular file"});
  check_error(jitgemm(bench + "--json folder"), {"cannot write folder: Is a directory; "});
  CHECK(jitgemm(bench + "--json null").status == 0);
  CHECK(fs::is_character_file(jitgemm.path("null")));
}

TEST_CASE("Others may read what is exported, and what is imported into a directory that is named", "[cli][wisdom]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const ScopedUmask umask(022);
  REQUIRE(jitgemm("tune -m 32 -n 32 -k 8" + quick).status == 0);
  CHECK(mode_of(jitgemm.path("cache")) == 0700);
  CHECK(mode_of(jitgemm.path("cache") / "tuning.jsonl") == 0600);
  const fs::path entry = std::string(jitgemm("cache ls --json").json()[0]["path"]);
  CHECK(mode_of(entry) == 0600);

  fs::create_symlink("real.wisdom", jitgemm.path("link.wisdom"));
  REQUIRE(jitgemm("wisdom export link.wisdom").status == 0);
  CHECK(fs::is_symlink(jitgemm.path("link.wisdom")));
  CHECK(mode_of(jitgemm.path("real.wisdom")) == 0644);

  // Whatever the umask: no reader takes anything from where others may write.
  const CacheEntry shipped = sample_entry("shipped");
  cache_at(jitgemm.path("cache")).store(key_of(shipped), shipped);
  REQUIRE(jitgemm("wisdom export real.wisdom").status == 0);
  for (const mode_t mask : {022, 002, 0}) {
    const ScopedUmask of_user(mask);
    const std::string to = "opt" + std::to_string(mask);
    const auto check_served = [&](const fs::path& directory, const fs::path& file) {
      CHECK(mode_of(directory) == 0755);
      CHECK(mode_of(directory / file) == 0644);
    };
    REQUIRE(jitgemm("cache export " + to + "/exported").status == 0);
    check_served(jitgemm.path(to + "/exported"), entry.filename());
    REQUIRE(jitgemm("wisdom import --kernels real.wisdom --cache-dir " + to + "/imported").status == 0);
    check_served(jitgemm.path(to + "/imported"), "tuning.jsonl");
    check_served(jitgemm.path(to + "/imported"), file_of("", shipped));
    const ScopedEnvironment layer("JITGEMM_SYSTEM_CACHE_DIR", jitgemm.path(to + "/imported").c_str());
    const Output explained = jitgemm("explain -m 32 -n 32 -k 8 --tuning cached --cache-dir fresh" + quick);
    CHECK(explained.err.empty());
    CHECK_THAT(explained.out, ContainsSubstring("of the system's database"));
  }
  REQUIRE(jitgemm("cache export open").status == 0);
  fs::permissions(jitgemm.path("open"), fs::perms::all);
  CHECK_THAT(jitgemm("cache export open").out, ContainsSubstring("writable by everyone: correct that"));
}

}  // namespace jitgemm::test
