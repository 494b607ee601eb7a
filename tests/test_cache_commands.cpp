// jitgemm warm, cache and wisdom: what they leave on disk.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

TEST_CASE("A cache directory that there is not is not made by what only looks after it", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  for (const char* words : {"cache ls", "cache ls --json", "cache verify", "cache prune", "cache clear",
                            "cache export to", "wisdom show", "wisdom export to"}) {
    const Output output = jitgemm(std::string(words) + " --cache-dir typo");
    CHECK(output.status == 1);
    CHECK_THAT(output.err, ContainsSubstring("there is no cache directory " + jitgemm.path("typo").string()));
    CHECK_FALSE(fs::exists(jitgemm.path("typo")));
  }
}

TEST_CASE("An empty cache is not exported", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  fs::create_directory(jitgemm.path("none"));
  fs::permissions(jitgemm.path("none"), fs::perms::owner_all);
  for (const char* words : {"cache export to", "cache export to --json", "cache export to --cache-dir none"}) {
    const Output output = jitgemm(words);
    CHECK(output.status == 1);
    CHECK(output.out.empty());
    CHECK_THAT(output.err, ContainsSubstring("no whole kernel in") && ContainsSubstring("`jitgemm warm`"));
    CHECK_FALSE(fs::exists(jitgemm.path("to")));
  }
  CHECK_THAT(jitgemm("cache export ''").err, ContainsSubstring("error: the folder is an empty path"));
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

namespace {

/// A file system of an image, as far as jitgemm sees it: programs, root's home and a user's.
class Image {
 public:
  Image() {
    constexpr fs::perms readable = fs::perms::all & ~fs::perms::group_write & ~fs::perms::others_write;
    fs::permissions(path(), readable);
    fs::create_directory(path("bin"));
    fs::copy_file(command_path(), path("bin") / "jitgemm");
    write_file(path("shapes.txt"), "64 64 64\n");
    fs::permissions(path("shapes.txt"), readable);
  }
  fs::path path(const std::string& name = {}) const { return directory_.path() / name; }

  /// Runs a line of shell where the image has its files at /, with the words of an ENV line set.
  Output run(bool as_root, const std::string& line, const std::string& environment = {}) const {
    const fs::path home = path("home");
    fs::remove_all(home);
    if (!as_root) {  // a user's first process
      fs::create_directory(home);
      fs::permissions(home, fs::perms::all);
    }
    const std::string out = path("out").string(), errors = path("errors").string();
    const std::string script =
        "cd " + path().string() + " && unset JITGEMM_CACHE_DIR XDG_CACHE_HOME && export PATH=" + path("bin").string() +
        ":$PATH HOME=" + (as_root ? path("root") : home).string() + " " + environment + " && " + line;
    const int status = wait_for(spawn([&] {
      for (const auto& [file, descriptor] : {std::pair(out, 1), std::pair(errors, 2)})
        dup2(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), descriptor);
      if (!as_root) expect(become_nobody(), "become nobody");
      return execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    }));
    return {status, file_text(out), file_text(errors)};
  }

 private:
  TemporaryDirectory directory_;
};

/// The rest of the lines of .github/INSTALL.md that begin with a word, /opt being the image's.
std::vector<std::string> recipe_lines(const std::string& word, const Image& image) {
  std::vector<std::string> found;
  for (std::string line : lines_of(file_text(JITGEMM_SOURCE_DIR "/.github/INSTALL.md"))) {
    if (!line.starts_with(word + " ")) continue;
    line.erase(0, word.size() + 1);
    if (const std::size_t at = line.find("/opt/"); at != std::string::npos) line.replace(at, 0, image.path().string());
    found.push_back(line);
  }
  return found;
}

void check_counts(const Output& output, int compiles, int disk_hits) {
  INFO(output.out << output.err);
  REQUIRE(output.status == 0);
  CHECK(output.json()["compiles"] == compiles);
  CHECK(output.json()["disk_hits"] == disk_hits);
}

}  // namespace

TEST_CASE("Kernels that root has warmed as INSTALL.md says serve every user of an image", "[cli][security]") {
  NEEDS_COMMAND();
  if (geteuid() != 0) SKIP("only root can become another user");
  const ScopedUmask umask(022);
  const Image image;
  const std::vector<std::string> run = recipe_lines("RUN", image), env = recipe_lines("ENV", image);
  REQUIRE(run.size() == 2);
  REQUIRE(env.size() == 1);
  for (const std::string& line : run) {
    const Output output = image.run(true, line);
    INFO(line << '\n' << output.out << output.err);
    if (output.err.find("no NVRTC") != std::string::npos) SKIP("no NVRTC: tools/bootstrap.sh installs it");
    REQUIRE(output.status == 0);
  }
  const Output users = image.run(false, "jitgemm warm --json --shapes shapes.txt --arch sm_90a", env[0]);
  check_counts(users, 0, 1);
  CHECK(users.err.empty());
}

TEST_CASE("What root has warmed for itself is no user's, who hears what to do", "[cli][security]") {
  NEEDS_COMMAND();
  if (geteuid() != 0) SKIP("only root can become another user");
  const ScopedUmask umask(022);
  const Image image;
  const std::string mine = image.path("opt").string(), env = "JITGEMM_SYSTEM_CACHE_DIR=" + mine;
  REQUIRE(image.run(true, "jitgemm warm" + small + "--cache-dir " + mine).status == 0);
  const Output refused = image.run(false, "jitgemm warm --json" + small, env);
  check_counts(refused, 1, 0);
  CHECK_THAT(refused.err, ContainsSubstring("jitgemm cache export") && ContainsSubstring("chmod -R a+rX"));
  REQUIRE(image.run(true, "chmod -R a+rX " + mine).status == 0);
  check_counts(image.run(false, "jitgemm warm --json" + small, env), 0, 1);

  const Output closed = image.run(true, "umask 077 && jitgemm cache export closed --cache-dir " + mine);
  CHECK_THAT(closed.out, ContainsSubstring("others cannot read it: correct that (chmod -R a+rX)"));
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
  CHECK(warm.json()["compiles"] > listed);  // and what packs, and what tuning checks results by
  CHECK(jitgemm("warm --configs few.txt --device emulator --json").json()["compiles"] == 0);
  write_file(jitgemm.path("few.txt"), "m=8 n=8 k=8; sm70 7x7x7\n");
  const Output bad = jitgemm("warm --configs few.txt --device emulator");
  CHECK(bad.status == 1);
  CHECK_THAT(bad.err, ContainsSubstring("few.txt:1"));
  write_file(jitgemm.path("few.txt"), "m=8 n=8 k=8; sm80 7x7x7\n");
  const Output illegal = jitgemm("warm --configs few.txt --device emulator");
  CHECK(illegal.status == 1);
  CHECK_THAT(illegal.err, ContainsSubstring("sm80 7x7x7") && ContainsSubstring("of the list: "));
}

TEST_CASE("jitgemm warm has as many kernels of its list in layouts and types that it was not drawn for",
          "[cli][nvrtc]") {
  NEEDS_COMMAND();
  for (const char* kind : {"--type f16 --layout tn", "--type e4m3 --layout nt"}) {
    const Output warm = Command()(std::string("warm --arch sm_90a --device compile_only --kernels 3 --json ") + kind);
    INFO(kind << warm.err);
    REQUIRE(warm.status == 0);
    CHECK(warm.json()["configurations"] == 3);
  }
}

TEST_CASE("jitgemm wisdom cover says so where nothing was measured, and which file is damaged", "[cli][wisdom]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("s.txt"), "64 64 64\r\n");
  write_file(jitgemm.path("few.txt"),
             "m=64 n=64 k=64; sm90 64x16x64 group_m=8 stages=4 warps=4 schedule=data_parallel\r\n"
             "m=64 n=64 k=64; sm90 64x16x64 group_m=8 stages=900 warps=4 schedule=data_parallel\n");
  const Output bench = jitgemm("bench --device emulator --shapes s.txt --no-peers --kernels few.txt --csv o.csv");
  INFO(bench.err);
  REQUIRE(bench.status == 0);
  std::string csv = file_text(jitgemm.path("o.csv"));
  CHECK_THAT(csv, ContainsSubstring("16 at most"));                 // why the second one is absent
  const Output nothing = jitgemm("wisdom cover o.csv --measured");  // the emulator times nothing
  CHECK(nothing.status == 1);
  CHECK_THAT(nothing.err, ContainsSubstring("o.csv has no time of a kernel that may be chosen"));
  const std::size_t time = csv.find("0 0.0000 sm90");
  REQUIRE(time != std::string::npos);
  csv.replace(time, 13, "7 0.0100 sm70");
  write_file(jitgemm.path("o.csv"), csv);
  const Output damaged = jitgemm("wisdom cover o.csv --measured");
  CHECK(damaged.status == 1);
  CHECK_THAT(damaged.err, ContainsSubstring("o.csv: "));
  CHECK_THAT(jitgemm("wisdom import tuned.jsonl").err, !ContainsSubstring("tuning database"));  // no such file
  write_file(jitgemm.path("tuned.jsonl"), "{}\n");
  CHECK_THAT(jitgemm("wisdom import tuned.jsonl").err, ContainsSubstring("it is a tuning database"));
}

}  // namespace jitgemm::test
