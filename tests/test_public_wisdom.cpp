// jitgemm/wisdom.hpp: what a program can do with wisdom.
#include <thread>

#include "catch.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "wisdom_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// What the call is refused with, which logs nothing.
template <typename Call>
std::string io_refusal(Call call) {
  const CapturedLog log;
  std::string what = refusal(ErrorCode::io, call);
  CHECK(log.text().empty());
  return what;
}

}  // namespace

TEST_CASE("What is exported is what the file has, and what an import takes", "[wisdom][public]") {
  const Machine machine;
  const Wisdom exported = export_wisdom(machine.file, machine.all());
  CHECK(exported.library == JITGEMM_VERSION);
  CHECK(exported.results.size() == 2);
  CHECK(exported.kernels.size() == 2);
  const Wisdom read = read_wisdom(machine.file), cached = cached_wisdom(machine.all());
  for (const Wisdom* wisdom : {&read, &cached}) {
    CHECK(wisdom->results.size() == 2);
    REQUIRE(wisdom->kernels.size() == 2);
    CHECK(wisdom->kernels[0].architecture == "sm_90a");
    CHECK(wisdom->kernels[0].bytes > 3000);
    CHECK_FALSE(wisdom->kernels[0].current);  // no source of these templates
    CHECK(wisdom->foreign_results + wisdom->foreign_kernels + wisdom->strange_kernels == 0);
  }
  const WisdomImport results = import_wisdom({machine.file}, {.cache_dir = machine.other});
  CHECK(results.results == 2);
  CHECK(results.kernels == 0);
  CHECK(results.kernels_left_out == 2);
  CHECK(results.directory == machine.other);
  CHECK(Cache(machine.other).kernels().empty());
  const WisdomImport kernels = import_wisdom({machine.file}, {.kernels = true, .cache_dir = machine.other});
  CHECK(kernels.results == 0);
  CHECK(kernels.kernels == 2);
  CHECK(kernels.kernels_left_out == 0);
  CHECK(kernels.wisdom.results.size() == 2);
  CHECK(Cache(machine.other).verify().size() == 2);
  export_wisdom(machine.path("b.wisdom"), {.cache_dir = machine.other});
  CHECK(file_text(machine.path("b.wisdom")) == file_text(machine.file));
}

TEST_CASE("A selection is of an architecture, of results, or without kernels", "[wisdom][public]") {
  const Machine machine;
  for (const char* architecture : {"sm_90a", "sm_90"}) {
    const Wisdom of_h200 = cached_wisdom({.cache_dir = machine.cache, .architecture = architecture});
    REQUIRE(of_h200.results.size() == 1);
    CHECK(of_h200.results[0].architecture == "sm_90a");
    CHECK(of_h200.kernels.size() == 2);
  }
  CHECK(cached_wisdom({.cache_dir = machine.cache, .kernels = false}).kernels.empty());
  const Wisdom of_a100 = export_wisdom(
      machine.file, {.cache_dir = machine.cache, .result = [](const TuningResult& r) { return r.device == "A100"; }});
  REQUIRE(of_a100.results.size() == 1);
  CHECK(of_a100.results[0].problem.m == second.m);
  CHECK(of_a100.kernels.empty());  // none that it uses
  CHECK(read_wisdom(machine.file).results.size() == 1);
  CHECK_THAT(refusal(ErrorCode::invalid_option, [&] { cached_wisdom({.architecture = "sm_91"}); }),
             ContainsSubstring("unknown architecture \"sm_91\": use one of"));
  struct Stop {};
  CHECK_THROWS_AS(export_wisdom(machine.path("none"), {.cache_dir = machine.cache,
                                                       .result = [](const TuningResult&) -> bool { throw Stop(); }}),
                  Stop);
  CHECK_FALSE(fs::exists(machine.path("none")));
}

TEST_CASE("Wisdom files are merged, also into one of them, and compared", "[wisdom][public]") {
  const Machine machine;
  const std::string a = machine.file, b = machine.path("b.wisdom");
  export_wisdom(a, machine.all());
  Home home(machine.other);
  home.db.merge({dated(record_of(first, 128), "2026-11-22", 11), dated(record_of(shape(64, 64, 64)), "2026-11-22", 3)});
  home.cache.store(key_of(sample_entry("c")), sample_entry("c"));
  export_wisdom(b, {.cache_dir = machine.other});

  const WisdomDiff diff = diff_wisdom(a, b);
  CHECK_FALSE(diff.equal());
  CHECK(diff.same == 0);
  REQUIRE(diff.only_a.size() == 1);
  CHECK(diff.only_a[0].architecture == "sm_80");
  REQUIRE(diff.only_b.size() == 1);
  CHECK(diff.only_b[0].problem.m == 64);
  REQUIRE(diff.differ.size() == 1);
  CHECK(diff.differ[0].first.config.block_m == 64);
  CHECK(diff.differ[0].second.config.block_m == 128);
  CHECK(diff.kernels_only_a == 2);
  CHECK(diff.kernels_only_b == 1);
  CHECK(diff.kernels_same == 0);
  CHECK(diff_wisdom(a, machine.cache + "/tuning.jsonl").equal());

  const Wisdom merged = merge_wisdom(a, {a, b});
  CHECK(merged.results.size() == 3);
  CHECK(merged.kernels.size() == 3);
  CHECK(diff_wisdom(b, a).only_a.empty());
  CHECK(diff_wisdom(b, a).differ.empty());
  CHECK(import_wisdom({a, b}, {.kernels = true, .cache_dir = machine.cache}).kernels == 1);
  CHECK(diff_wisdom(a, machine.cache + "/tuning.jsonl").equal());
}

TEST_CASE("What is no wisdom is one Error, and changes nothing", "[wisdom][public]") {
  const Machine machine;
  export_wisdom(machine.file, machine.all());
  const std::string bad = machine.path("bad.wisdom"), out = machine.path("out.wisdom");
  const auto refused = [&](const std::string& file, const std::string& why) {
    INFO(file);
    const auto check = [&](auto call) {
      CHECK_THAT(io_refusal(call), ContainsSubstring(why) && ContainsSubstring("; "));
    };
    check([&] { read_wisdom(file); });
    check([&] { diff_wisdom(machine.file, file); });
    if (file.ends_with(".jsonl")) return;
    check([&] { import_wisdom({machine.file, file}, {.kernels = true, .cache_dir = machine.other}); });
    check([&] { merge_wisdom(out, {machine.file, file}); });
  };
  write_file(bad, "a file that is something else, and long enough for a head");
  refused(bad, "it is no wisdom file");
  write_file(bad, "");
  refused(bad, "it is cut short");
  write_file(bad, file_text(machine.file).substr(0, 500));
  refused(bad, "it is cut short");
  refused(machine.path("nowhere"), "No such file or directory");
  refused(machine.cache, "Is a directory");
  refused(machine.path("nowhere.jsonl"), "No such file or directory");
  const std::string lines = machine.path("lines.jsonl");
  write_file(lines, "one line\nand another\n");
  refused(lines, "it has no tuning result, as in line 1 (");
  write_file(lines, "no line");
  refused(lines, "it has no tuning result; ");
  fs::create_directory(machine.path("folder.jsonl"));
  refused(machine.path("folder.jsonl"), "it is not a regular file");
  for (const std::string& path : {std::string(), std::string("a\0b", 3)}) {
    for (const auto& call :
         {std::function([&] { read_wisdom(path); }), std::function([&] { export_wisdom(path, machine.all()); }),
          std::function([&] { import_wisdom({path}, {.cache_dir = machine.other}); }),
          std::function([&] { merge_wisdom(path, {machine.file}); })})
      CHECK_THAT(refusal(ErrorCode::invalid_option, call),
                 ContainsSubstring("the wisdom file ") && ContainsSubstring("; give one"));
  }
  for (const auto& call : {std::function([&] { import_wisdom({}, {.cache_dir = machine.other}); }),
                           std::function([&] { merge_wisdom(out, {}); })})
    CHECK_THAT(refusal(ErrorCode::invalid_option, call), ContainsSubstring("no wisdom file to read from; give one"));
  CHECK_FALSE(fs::exists(machine.other));
  CHECK_FALSE(fs::exists(out));
}

TEST_CASE("A tuning database that is read as wisdom may be empty, and have lines of other versions",
          "[wisdom][public]") {
  const Machine machine;
  const std::string file = machine.path("a.jsonl");
  write_file(file, "");
  CHECK(read_wisdom(file).results.empty());
  write_file(file, "{\"schema\": 99}\n");
  CHECK(read_wisdom(file).results.empty());
  CHECK(read_wisdom(file).foreign_results == 1);
  write_file(file, "half a li\n" + file_text(machine.cache + "/tuning.jsonl"));
  const CapturedLog log;
  CHECK(read_wisdom(file).results.size() == 2);
  CHECK_THAT(log.text(), ContainsSubstring("skipped line 1 ("));
}

TEST_CASE("Wisdom neither comes from nor goes to a directory that cannot be used", "[wisdom][public][security]") {
  const Machine machine;
  export_wisdom(machine.file, machine.all());
  CHECK_THAT(io_refusal([&] { cached_wisdom({.cache_dir = machine.other}); }), ContainsSubstring("there is no cache"));
  CHECK_FALSE(fs::exists(machine.other));
  CHECK_THAT(io_refusal([&] { export_wisdom(machine.cache, machine.all()); }), ContainsSubstring("cannot write"));
  CHECK_THAT(io_refusal([&] { export_wisdom(machine.path("no/where"), machine.all()); }),
             ContainsSubstring("cannot write") && ContainsSubstring("; make room or write elsewhere"));

  fs::create_directory(machine.other);
  fs::permissions(machine.other, fs::perms(0777));
  const auto import = [&] { import_wisdom({machine.file}, {.kernels = true, .cache_dir = machine.other}); };
  CHECK_THAT(io_refusal(import), ContainsSubstring("writable by everyone; set "));
  fs::permissions(machine.other, fs::perms(0755));
  if (geteuid() == 0) {
    REQUIRE(chown(machine.other.c_str(), 65534, 65534) == 0);
    CHECK_THAT(io_refusal(import), ContainsSubstring("owned by another user; set "));
    REQUIRE(chown(machine.other.c_str(), 0, 0) == 0);
  }
  {
    const ScopedEnvironment bound("JITGEMM_CACHE_MAX_BYTES", "1000");
    CHECK_THAT(io_refusal(import), ContainsSubstring("set JITGEMM_CACHE_MAX_BYTES to more"));
  }
  CHECK(fs::is_empty(machine.other));
  // The system's alone is enough to read, not to import into.
  const ScopedEnvironment own("JITGEMM_CACHE_DIR", (machine.file + "/cache").c_str()),
      system("JITGEMM_SYSTEM_CACHE_DIR", machine.cache.c_str());
  CHECK(cached_wisdom().results.size() == 2);
  CHECK(cached_wisdom().kernels.size() == 2);
  CHECK_THAT(io_refusal([&] { import_wisdom({machine.file}); }),
             ContainsSubstring("Not a directory; set JITGEMM_CACHE_DIR"));
}

TEST_CASE("Imports and exports at once lose nothing", "[wisdom][public]") {
  const Machine machine;
  constexpr int count = 12;
  std::vector<std::string> files;
  for (int i = 0; i < count; ++i) {
    Home home(machine.path(("m" + std::to_string(i)).c_str()));
    home.db.merge({dated(record_of(shape(16 * i + 16, 16, 16)), "2026-11-21", 5),
                   dated(record_of(first, 32 << (i % 3)), "2026-11-22", 9.0 - 0.25 * i)});
    const CacheEntry entry = sample_entry("of " + std::to_string(i));
    home.cache.store(key_of(entry), entry);
    files.push_back(machine.path(("f" + std::to_string(i)).c_str()));
    export_wisdom(files.back(), {.cache_dir = home.directory.string()});
  }
  const WisdomImportOptions into{.kernels = true, .cache_dir = machine.other};
  const std::string snapshot = machine.path("snapshot");
  std::vector<pid_t> children;
  for (int i = 0; i < count / 2; ++i) {
    children.push_back(spawn([&, i] {
      import_wisdom({files[std::size_t(i)]}, into);
      export_wisdom(snapshot, {.cache_dir = machine.other});
      expect(!read_wisdom(snapshot).results.empty(), "a snapshot is whole");
      return 0;
    }));
  }
  std::vector<std::thread> threads;
  for (int i = count / 2; i < count; ++i)
    threads.emplace_back([&, i] { import_wisdom({files[std::size_t(i)]}, into); });
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  const Wisdom all = cached_wisdom({.cache_dir = machine.other});
  CHECK(all.results.size() == count + 1);
  CHECK(all.kernels.size() == count);
  for (const TuningResult& result : all.results) {
    if (result.problem.m == first.m) CHECK(result.median_us == 9.0 - 0.25 * (count - 1));  // the fastest of that day
  }
}
