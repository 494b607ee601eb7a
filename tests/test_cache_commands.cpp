// jitgemm warm, cache and wisdom: what they leave on disk.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "cache_samples.hpp"
#include "catch.hpp"
#include "command.hpp"
#include "jitgemm/jitgemm.hpp"
#include "tuning_samples.hpp"

namespace jitgemm::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

const std::string small = " -m 70 -n 66 -k 65 --device emulator ";

}  // namespace

TEST_CASE("jitgemm warm compiles each kernel once", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "# two of a kind\n64 64 64\n\n128 64 64  # the same kernel\n");
  const std::string arguments =
      "warm --shapes shapes.txt --device emulator --json "
      "--config 'sm80 64x64x32 group_m=4 stages=3 warps=4 schedule=data_parallel'";
  const Output first = jitgemm(arguments);
  INFO(first.err);
  REQUIRE(first.status == 0);
  CHECK(first.json()["problems"] == 2);
  CHECK(first.json()["compiles"] == 1);
  CHECK(jitgemm(arguments).json()["compiles"] == 0);
}

TEST_CASE("jitgemm cache lists, verifies, exports, prunes and clears", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  REQUIRE(jitgemm("warm" + small).status == 0);
  const nlohmann::json entries = jitgemm("cache ls --json").json();
  REQUIRE(entries.size() == 1);
  const fs::path entry = std::string(entries[0]["path"]);
  CHECK(jitgemm("cache verify").status == 0);

  CHECK(jitgemm("cache export exported").status == 0);
  CHECK(file_text(jitgemm.path("exported") / entry.filename()) == file_text(entry));
  CHECK(jitgemm("cache export sources --binaries").status == 0);
  CHECK_THAT(file_text(jitgemm.path("sources") / (std::string(entries[0]["digest"]) + ".cu")),
             ContainsSubstring("constexpr int BLOCK_M"));

  std::string bytes = file_text(entry);
  bytes[bytes.size() / 2] ^= 1;
  write_file(entry, bytes);
  const Output damaged = jitgemm("cache verify");
  CHECK(damaged.status == 1);
  CHECK_THAT(damaged.out, ContainsSubstring(entry.filename().string()));
  CHECK_THAT(damaged.err, ContainsSubstring("jitgemm cache prune"));
  CHECK(jitgemm("cache prune --max-bytes 1G").status == 0);
  CHECK_FALSE(fs::exists(entry));

  REQUIRE(jitgemm("warm" + small).status == 0);
  CHECK(fs::exists(entry));
  CHECK(jitgemm("cache clear").status == 0);
  CHECK(jitgemm("cache ls --json").json().empty());
}

TEST_CASE("jitgemm wisdom carries tuning results and kernels to another directory, and compares them",
          "[cli][wisdom]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  REQUIRE(jitgemm("tune --tuning-budget 0.05" + small).status == 0);  // its kernels, the emulator's, stay here
  const CacheEntry kernel = sample_entry("of a GPU");
  cache_at(jitgemm.path("cache")).store(key_of(kernel), kernel);
  const Output exported = jitgemm("wisdom export a.wisdom");
  INFO(exported.err);
  REQUIRE(exported.status == 0);
  CHECK_THAT(exported.out, ContainsSubstring("exported 1 record, 1 kernel ") && ContainsSubstring("of the emulator"));

  const nlohmann::json facts = jitgemm("wisdom show a.wisdom --json").json();
  CHECK(facts["version"] == 1);
  CHECK(facts["library"] == JITGEMM_VERSION);
  CHECK(facts["list"]["records"].size() == 1);
  CHECK(facts["kernels"] == 1);
  CHECK(facts["kernels_of_other_templates"] == 1);
  CHECK_THAT(jitgemm("wisdom show a.wisdom").out,
             ContainsSubstring("m=70 n=66 k=65") && ContainsSubstring("of format 1"));

  const nlohmann::json imported = jitgemm("wisdom import a.wisdom --cache-dir other --json").json();
  CHECK(imported["imported_records"] == 1);
  CHECK(imported["imported_kernels"] == 0);
  CHECK(imported["kernels_left_out"] == 1);
  CHECK_FALSE(fs::exists(file_of(jitgemm.path("other"), kernel)));
  const std::string again = jitgemm("wisdom import a.wisdom --cache-dir other").out;
  CHECK_THAT(again, ContainsSubstring("imported 0 of 1 record and 0 of 0 kernels") &&
                        ContainsSubstring("1 kernel left out") && ContainsSubstring("--kernels"));
  CHECK_THAT(jitgemm("wisdom import a.wisdom --kernels --cache-dir other").out,
             ContainsSubstring("and 1 of 1 kernel into"));
  CHECK(fs::exists(file_of(jitgemm.path("other"), kernel)));
  const Output warm = jitgemm("explain --json --cache-dir other --tuning cached" + small);
  INFO(warm.err);
  CHECK(warm.json()["source"] == "exact");

  // As a system layer.
  REQUIRE(std::system(
              ("cp -r '" + jitgemm.path("other").string() + "' '" + jitgemm.path("kept").string() + "'").c_str()) == 0);
  const ScopedEnvironment layer("JITGEMM_SYSTEM_CACHE_DIR", jitgemm.path("other").c_str());
  const Output explained = jitgemm("explain --cache-dir third --tuning cached" + small);
  INFO(explained.err);
  CHECK_THAT(explained.out, ContainsSubstring("of the system's database"));
  CHECK(std::system(
            ("diff -r '" + jitgemm.path("other").string() + "' '" + jitgemm.path("kept").string() + "'").c_str()) == 0);

  CHECK(jitgemm("wisdom diff a.wisdom a.wisdom").status == 0);
  CHECK(jitgemm("wisdom diff a.wisdom cache/tuning.jsonl").status == 0);
  std::string line = file_text(jitgemm.path("cache") / "tuning.jsonl");
  const std::size_t group = line.find("group_m=") + 8;
  line[group] = line[group] == '0' ? '8' : '0';
  write_file(jitgemm.path("b.jsonl"), line);
  fs::permissions(jitgemm.path("b.jsonl"), fs::perms(0666));  // a file that the user names may be anyone's
  const Output diff = jitgemm("wisdom diff a.wisdom b.jsonl");
  CHECK(diff.status == 1);
  CHECK(diff.err.empty());
  CHECK_THAT(diff.out, ContainsSubstring("differs: m=70") && ContainsSubstring("(1.000 of the time)"));
  CHECK(jitgemm("wisdom diff a.wisdom b.jsonl --json").json()["differ"].size() == 1);
  CHECK(jitgemm("wisdom diff a.wisdom nowhere").status == 2);

  CHECK(jitgemm("wisdom export none.wisdom --no-kernels --arch sm_80").status == 0);
  CHECK(jitgemm("wisdom merge all.wisdom a.wisdom none.wisdom").status == 0);
  CHECK(file_text(jitgemm.path("all.wisdom")) == file_text(jitgemm.path("a.wisdom")));
}

TEST_CASE("jitgemm wisdom shows what this machine knows, and exports a GPU's part of it", "[cli][wisdom]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  CHECK(jitgemm("wisdom show").status == 0);  // nothing yet
  fs::create_directory(jitgemm.path("cache"));
  const CacheEntry of_sm_90a = sample_entry("of an H200"), of_sm_80 = [] {
    CacheEntry entry = sample_entry("of an A100");
    entry.source.architecture = entry.binary.architecture = "sm_80";
    return entry;
  }();
  KernelCache cache = cache_at(jitgemm.path("cache"));
  for (const CacheEntry* entry : {&of_sm_90a, &of_sm_80}) cache.store(key_of(*entry), *entry);
  TuningRecord on_a100 = record_of(shape(96, 96, 96)), emulated = record_of(shape(64, 64, 64));
  on_a100.compute_capability = 80;
  emulated.emulated = true;
  TuningDb(jitgemm.path("cache") / "tuning.jsonl").merge({record_of(shape(128, 128, 128)), on_a100, emulated});
  REQUIRE(jitgemm("warm --arch sm_90a" + small).status == 0);  // a kernel of the emulator for the same architecture

  const Output all = jitgemm("wisdom show");
  INFO(all.out << all.err);
  CHECK(all.status == 0);
  for (const char* part :
       {"m=128", "m=96", "m=64", "1 kernel for sm_80", "1 kernel for sm_90a", "3 records, 2 kernels"})
    CHECK_THAT(all.out, ContainsSubstring(part));
  CHECK(jitgemm("wisdom show --json").json()["records"] == 3);
  CHECK(jitgemm("wisdom show cache/tuning.jsonl --json").json()["records"] == 3);
  CHECK(jitgemm("wisdom show --cache-dir cache/tuning.jsonl").status == 1);

  REQUIRE(jitgemm("wisdom export part.wisdom --arch sm_90a").status == 0);
  const nlohmann::json part = jitgemm("wisdom show part.wisdom --json").json();
  REQUIRE(part["list"]["records"].size() == 1);
  CHECK(part["list"]["records"][0]["problem"]["m"] == 128);
  REQUIRE(part["list"]["kernels"].size() == 1);
  CHECK(part["list"]["kernels"][0]["digest"] == key_of(of_sm_90a).digest);
}

// As in .github/INSTALL.md.
TEST_CASE("Kernels that root has warmed for an image serve its users", "[cli][security]") {
  NEEDS_COMMAND();
  if (geteuid() != 0) SKIP("only root can become another user");
  const Command jitgemm;
  const TemporaryDirectory image;
  fs::permissions(image.path(), fs::perms::all & ~fs::perms::group_write & ~fs::perms::others_write);
  fs::create_directory(image.path() / "home");
  fs::permissions(image.path() / "home", fs::perms::all);
  fs::copy_file(command_path(), image.path() / "jitgemm");
  const auto as_user = [&](const fs::path& system_cache) {
    const fs::path out = image.path() / "home" / "out";
    CHECK(wait_for(spawn([&] {
            const std::string program = (image.path() / "jitgemm").string();
            const std::string line =
                program + " warm --json" + small + " >" + out.string() + " 2>" + out.string() + ".errors";
            expect(become_nobody(), "become nobody");
            unsetenv("JITGEMM_CACHE_DIR");
            unsetenv("XDG_CACHE_HOME");
            setenv("HOME", (image.path() / "home").c_str(), 1);
            setenv("JITGEMM_SYSTEM_CACHE_DIR", system_cache.c_str(), 1);
            return execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
          })) == 0);
    INFO(file_text(out.string() + ".errors"));
    const nlohmann::json facts = nlohmann::json::parse(file_text(out));
    const std::string errors = file_text(out.string() + ".errors");
    fs::remove_all(image.path() / "home");
    fs::create_directory(image.path() / "home");
    fs::permissions(image.path() / "home", fs::perms::all);
    return std::tuple(facts["compiles"].get<int>(), facts["disk_hits"].get<int>(), errors);
  };
  const ScopedUmask umask(022);
  REQUIRE(jitgemm("warm" + small).status == 0);
  const std::string exported = (image.path() / "opt" / "jitgemm").string();
  REQUIRE(jitgemm("cache export " + exported).status == 0);
  CHECK(as_user(exported) == std::tuple(0, 1, ""));

  // What root has warmed for itself is nobody else's, and who tries hears what to do.
  const std::string private_one = (image.path() / "private").string();
  REQUIRE(jitgemm("warm --cache-dir " + private_one + small).status == 0);
  const auto [compiles, hits, errors] = as_user(private_one);
  CHECK(compiles == 1);
  CHECK(hits == 0);
  CHECK_THAT(errors, ContainsSubstring("jitgemm cache export") && ContainsSubstring("chmod -R a+rX"));
  REQUIRE(std::system(("chmod -R a+rX " + private_one).c_str()) == 0);
  CHECK(as_user(private_one) == std::tuple(0, 1, ""));

  const ScopedUmask strict(077);
  const std::string closed = (image.path() / "closed").string();
  CHECK_THAT(jitgemm("cache export " + closed).out, ContainsSubstring("others cannot read it"));
}

TEST_CASE("jitgemm wisdom cover picks kernels that jitgemm warm compiles", "[cli][wisdom]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  std::string lines;
  for (const Problem& problem : {Problem{.m = 64, .n = 64, .k = 64}, Problem{.m = 512, .n = 96, .k = 70}}) {
    TuningRecord record = record_of(shape_of(normalise(problem)), 64, device_info_for("sm_90a"));
    lines += to_json_line(record) + "\n";
  }
  write_file(jitgemm.path("tuned.jsonl"), lines);
  const Output table = jitgemm("wisdom cover tuned.jsonl");
  INFO(table.err);
  REQUIRE(table.status == 0);
  CHECK_THAT(table.out, ContainsSubstring("2 problems; the best choices need 2 kernels"));
  const Output output = jitgemm("wisdom cover tuned.jsonl --kernels 1,2 --list few.txt --json");
  INFO(output.err);
  REQUIRE(output.status == 0);
  const nlohmann::json sets = output.json()["sets"];
  CHECK(sets.size() == 2);
  CHECK(sets[0]["kernels"] == 1);
  CHECK(sets[1]["regret_geomean"] == 1);
  const Output warm = jitgemm("warm --configs few.txt --device emulator --json");
  INFO(warm.err);
  REQUIRE(warm.status == 0);
  const std::size_t listed = lines_of(file_text(jitgemm.path("few.txt"))).size() - 1;
  CHECK(listed >= 1);
  CHECK(warm.json()["configurations"] == listed);
  CHECK(warm.json()["compiles"] == listed);
  write_file(jitgemm.path("few.txt"), "m=8 n=8 k=8; sm70 7x7x7\n");
  const Output bad = jitgemm("warm --configs few.txt --device emulator");
  CHECK(bad.status == 1);
  CHECK_THAT(bad.err, ContainsSubstring("few.txt:1"));
}

}  // namespace jitgemm::test
