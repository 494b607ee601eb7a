#include "tune/wisdom.hpp"

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>

#include "cache_samples.hpp"
#include "catch.hpp"
#include "errors.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "tuning_samples.hpp"
#include "util/hash.hpp"
#include "util/publish_step.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

const Problem first = shape(1024, 1024, 1024), second = shape(2048, 512, 4096);

TuningRecord dated(TuningRecord record, const std::string& date, double median_us) {
  record.date = date;
  record.median_us = median_us;
  return record;
}

/// A machine's cache directory.
struct Home {
  explicit Home(const fs::path& path) : directory(path), cache({.directory = path}), db(path / "tuning.jsonl") {}

  fs::path directory;
  KernelCache cache;
  TuningDb db;

  Wisdom collect(const WisdomSelection& selection = {}) { return collect_wisdom(db, cache, selection); }
  void export_to(const fs::path& file, const WisdomSelection& selection = {}) {
    const Wisdom wisdom = collect(selection);
    write_wisdom(file, wisdom.records, wisdom.kernels);
  }
  WisdomImport import_from(const fs::path& file) { return import_wisdom({read_wisdom(file)}, db, cache); }
};

/// What keeps a file from being read, written or imported.
std::string io_error(const std::function<void()>& work) { return refusal(ErrorCode::io, work); }

/// All files below a directory with what is in them, but the lock files.
std::map<fs::path, std::string> contents(const fs::path& directory) {
  std::map<fs::path, std::string> files;
  for (const auto& item : fs::recursive_directory_iterator(directory)) {
    if (item.is_regular_file()) files[item.path().lexically_relative(directory)] = file_text(item.path());
  }
  return files;
}

std::string sealed(std::string bytes) {
  bytes.resize(bytes.size() - 32);
  return bytes + digest_of(bytes);
}

/// A small file of two records and two kernels.
std::string sample_wisdom(const fs::path& directory) {
  Home home(directory / "sample");
  home.db.add(dated(record_of(first), "2026-11-21", 12.5));
  home.db.add(dated(record_of(second, 32), "2026-11-20", 7.25));
  home.cache.store(key_of(sample_entry("a", 300)), sample_entry("a", 300));
  home.cache.store(key_of(sample_entry("b", 200)), sample_entry("b", 200));
  home.export_to(directory / "sample.wisdom");
  return file_text(directory / "sample.wisdom");
}

}  // namespace

TEST_CASE("Wisdom exported and imported gives the same answers and the same kernels", "[wisdom]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "a.wisdom";
  const std::string bytes = sample_wisdom(directory.path());
  write_file(file, bytes);
  Home from(directory.path() / "sample"), to(directory.path() / "to");
  const WisdomImport done = to.import_from(file);
  CHECK(done.records == 2);
  CHECK(done.kernels == 2);
  for (const char* name : {"a", "b"}) {
    const CacheEntry entry = sample_entry(name, *name == 'a' ? 300 : 200);
    CHECK(file_text(file_of(to.directory, entry)) == file_text(file_of(from.directory, entry)));
    CHECK_FALSE(ask(to.cache, entry));
  }
  for (const Problem& problem : {first, second, shape(1024, 1024, 1100)}) {
    const TuningLookup ours = to.db.find(problem, h200), theirs = from.db.find(problem, h200);
    CHECK(ours.match != Match::none);
    CHECK(ours.match == theirs.match);
    CHECK(ours.config == theirs.config);
    CHECK(ours.why == theirs.why);
  }
  // The same content, the same bytes; and once more changes nothing.
  to.export_to(directory.path() / "b.wisdom");
  CHECK(file_text(directory.path() / "b.wisdom") == bytes);
  const auto before = contents(to.directory);
  const WisdomImport again = to.import_from(file);
  CHECK(again.records == 0);
  CHECK(again.kernels == 0);
  CHECK(contents(to.directory) == before);
}

TEST_CASE("After an import the first call compiles nothing", "[wisdom]") {
  const TemporaryDirectory directory;
  const fs::path from = directory.path() / "from", to = directory.path() / "to", file = directory.path() / "file";
  const Problem problem = normalise({.m = 48, .n = 64, .k = 96});
  alignas(256) static std::uint16_t a[48 * 96], b[96 * 64], d[48 * 64];
  const auto run = [&](const fs::path& home) {
    Context context({.device = Device::emulator, .tuning = Tuning::cached, .cache_dir = home.string()});
    context.gemm(problem, {.a = a, .b = b, .d = d});
    return std::pair(context.counters(), context.plan(problem));
  };
  {
    Context context({.device = Device::emulator, .cache_dir = from.string()});
    const DeviceDescription device = context.device();
    TuningRecord record = record_of(shape_of(problem));
    record.device_name = device.name;
    record.sm_count = device.sm_count;
    record.emulated = true;
    record.config = parse_kernel_config("sm80 32x32x32 group_m=0 stages=2 warps=2 schedule=data_parallel");
    TuningDb(from / "tuning.jsonl").add(record);
  }
  const auto [cold, plan] = run(from);
  REQUIRE(cold.compiles == 1);
  REQUIRE(plan.source == PlanSource::exact);
  Home(from).export_to(file, {.problem = [&](const Problem& p) { return p.m == 48; }});
  const Wisdom wisdom = read_wisdom(file);
  REQUIRE(wisdom.kernels.size() == 1);
  CHECK(wisdom.kernels[0].current);
  Home(to).import_from(file);

  const auto [warm, same_plan] = run(to);
  CHECK(warm.compiles == 0);
  CHECK(warm.disk_hits == 1);
  CHECK(same_plan.config == plan.config);
  CHECK(same_plan.why == plan.why);
}

TEST_CASE("A selection takes an architecture, some problems and their kernels, or no kernels", "[wisdom]") {
  const TemporaryDirectory directory;
  Home home(directory.path() / "home");
  const DeviceInfo a100 = device_info_for("sm_80");
  home.db.add(record_of(first));
  home.db.add(record_of(second));
  home.db.add(record_of(first, 64, a100));
  const auto store = [&](const KernelSource& source) {
    const CacheEntry entry{source, {"code", source.entry, source.architecture, "nvrtc 13.0.88"}};
    home.cache.store(key_of(entry), entry);
    return key_of(entry).digest;
  };
  const std::string used = store(generate(first, record_of(first).config, h200));
  store(generate(first, record_of(first).config, a100));
  store(sample_entry("another").source);

  CHECK(home.collect().records.size() == 3);
  CHECK(home.collect().kernels.size() == 3);
  const Wisdom of_a100 = home.collect({.architecture = "sm_80"});
  CHECK(of_a100.records.size() == 1);
  CHECK(of_a100.kernels.size() == 1);
  CHECK(home.collect({.kernels = false}).kernels.empty());
  const Wisdom of_first =
      home.collect({.architecture = "sm_90a", .problem = [](const Problem& p) { return p.m == 1024; }});
  CHECK(of_first.records.size() == 1);
  REQUIRE(of_first.kernels.size() == 1);
  CHECK(of_first.kernels[0].digest == used);
  CHECK(of_first.kernels[0].current);
  CHECK(home.collect({.problem = [](const Problem&) { return false; }}).kernels.empty());
}

TEST_CASE("A kernel is current while the templates and the version are", "[wisdom]") {
  Problem packed = normalise({.m = 100, .n = 101, .k = 103});
  KernelConfig packing =
      parse_kernel_config("sm90 128x128x64 group_m=8 stages=4 warps=8 schedule=data_parallel pack=ab");
  for (const DataType type : {f16, e4m3, tf32, f32, f64, s8}) {
    const Problem p = normalise({.m = 256,
                                 .n = 256,
                                 .k = 256,
                                 .a = type,
                                 .b = type,
                                 .d = type == s8    ? s32
                                      : type == f64 ? f64
                                                    : f32});
    KernelSource source = generate(p, KernelConfig{.block_k = 128 / int(size_of(type))}, device_info_for("sm_89"));
    CHECK(is_current(source));
    for (const std::size_t at : {std::size_t(40), source.text.size() / 2, source.text.size() - 30}) {
      KernelSource other = source;
      other.text.insert(other.text.find('\n', at), " ");
      CHECK_FALSE(is_current(other));
    }
  }
  KernelSource source = generate_packing(packed, packing, h200);
  CHECK(is_current(source));
  source.text += "\n";
  CHECK_FALSE(is_current(source));
  CHECK(is_current(generate(packed, packing, h200)));
  CHECK_FALSE(is_current(sample_entry("foreign").source));
}

TEST_CASE("Of two records the later counts, of those of one day the faster, whichever comes first", "[wisdom]") {
  const auto check = [](const TuningRecord& better, const TuningRecord& worse) {
    CHECK(replaces(better, worse));
    CHECK_FALSE(replaces(worse, better));
    for (const auto& records : {std::vector{better, worse}, std::vector{worse, better}}) {
      TuningDb db(std::nullopt);
      db.merge(records);
      REQUIRE(db.records().size() == 1);
      CHECK(to_json_line(db.records()[0]) == to_json_line(better));
      std::vector<Wisdom> all(2);
      all[0].records = {records[0]}, all[1].records = {records[1]};
      CHECK(to_json_line(merge_wisdom(all).records.at(0)) == to_json_line(better));
    }
  };
  const TuningRecord a = record_of(first, 32), b = record_of(first, 64);
  check(dated(a, "2026-11-21", 9), dated(b, "2026-11-20", 3));
  check(dated(a, "2026-11-21", 3), dated(b, "2026-11-21", 9));
  check(dated(a, "2026-11-21", 9), dated(b, "some day", 3));
  check(dated(b, "2026-11-21", 3), dated(a, "2026-11-21", 3));  // any one, but always the same
  CHECK_FALSE(replaces(a, a));

  // Another device or another problem is another record.
  TuningDb db(std::nullopt);
  CHECK(db.merge({a, record_of(second), record_of(first, 32, device_info_for("sm_80"))}) == 3);
}

TEST_CASE("An import takes what is better and leaves the rest, and keeps the version that measured", "[wisdom]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "file";
  TuningRecord old = dated(record_of(second, 32), "2026-11-22", 8);
  old.library_version = "0.0.1";
  write_wisdom(file, {dated(record_of(first, 32), "2026-11-20", 3), old}, {});
  Home home(directory.path() / "home");
  home.db.add(dated(record_of(first, 64), "2026-11-21", 9));
  home.db.add(dated(record_of(second, 64), "2026-11-21", 7));
  CHECK(home.import_from(file).records == 1);
  TuningDb fresh(home.directory / "tuning.jsonl");
  CHECK(fresh.find(first, h200).config.block_m == 64);
  CHECK(fresh.find(second, h200).config.block_m == 32);
  const auto records = fresh.records();
  CHECK(std::count_if(records.begin(), records.end(), [](const auto& r) { return r.library_version == "0.0.1"; }) == 1);
}

TEST_CASE("A damaged kernel is replaced by the imported one, a whole one stays", "[wisdom]") {
  const TemporaryDirectory directory;
  const CacheEntry a = sample_entry("a", 300), b = sample_entry("b", 200);
  sample_wisdom(directory.path());
  Home home(directory.path() / "home");
  CacheEntry newer = a;
  newer.binary.compiler = "nvrtc 14.0";
  home.cache.store(key_of(a), newer);
  home.cache.store(key_of(b), b);
  const std::string kept = file_text(file_of(home.directory, a)), whole = file_text(file_of(home.directory, b));
  write_file(file_of(home.directory, b), whole.substr(0, 100));
  CHECK(home.import_from(directory.path() / "sample.wisdom").kernels == 1);
  CHECK(file_text(file_of(home.directory, a)) == kept);
  CHECK(file_text(file_of(home.directory, b)) == whole);
}

TEST_CASE("Merged wisdom has every kernel once", "[wisdom]") {
  const TemporaryDirectory directory;
  const fs::path sample = directory.path() / "sample.wisdom", out = directory.path() / "out";
  const std::string bytes = sample_wisdom(directory.path());
  Home other(directory.path() / "other");
  other.db.add(record_of(shape(64, 64, 64)));
  other.cache.store(key_of(sample_entry("a", 300)), sample_entry("a", 300));
  other.cache.store(key_of(sample_entry("c")), sample_entry("c"));
  other.export_to(directory.path() / "other.wisdom");
  const Wisdom merged = merge_wisdom({read_wisdom(sample), read_wisdom(directory.path() / "other.wisdom")});
  write_wisdom(out, merged.records, merged.kernels);
  CHECK(read_wisdom(out).records.size() == 3);
  CHECK(read_wisdom(out).kernels.size() == 3);
  const Wisdom same = merge_wisdom({read_wisdom(sample), read_wisdom(sample)});
  write_wisdom(sample, same.records, same.kernels);  // over one that it reads from
  CHECK(file_text(sample) == bytes);
}

TEST_CASE("The difference of two is what is in one only and what is chosen otherwise", "[wisdom]") {
  Wisdom a, b;
  a.records = {record_of(first, 32), record_of(second), record_of(shape(64, 64, 64))};
  b.records = {dated(record_of(first, 64), "", 25), record_of(second), record_of(first, 32, device_info_for("sm_80"))};
  a.kernels = {{.digest = "x"}, {.digest = "y"}};
  b.kernels = {{.digest = "y"}};
  const WisdomDiff diff = diff_wisdom(a, b);
  CHECK_FALSE(diff.equal());
  CHECK(diff.same == 1);
  REQUIRE(diff.only_a.size() == 1);
  CHECK(diff.only_a[0].problem.m == 64);
  REQUIRE(diff.only_b.size() == 1);
  CHECK(diff.only_b[0].compute_capability == 80);
  REQUIRE(diff.differ.size() == 1);
  CHECK(diff.differ[0].first.config.block_m == 32);
  CHECK(diff.differ[0].second.config.block_m == 64);
  CHECK(diff.kernels_only_a == 1);
  CHECK(diff.kernels_only_b == 0);
  CHECK(diff.kernels_same == 1);
  CHECK(diff_wisdom(a, a).equal());
}

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
          import_wisdom({read_wisdom(file), read_wisdom(directory.path() / "none")}, home.db, home.cache);
        }).find("No such file") != std::string::npos);
  CHECK_THAT(io_error([&] { read_wisdom(directory.path()); }), ContainsSubstring("cannot read the wisdom"));
  CHECK(contents(home.directory) == before);
  CHECK(home.import_from(file).kernels == 2);
}

TEST_CASE("Wisdom that is whole but not what it says is refused with the reason", "[wisdom]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "file";
  const std::string good = sample_wisdom(directory.path());
  const auto why = [&](std::string bytes) {
    write_file(file, sealed(std::move(bytes)));
    return io_error([&] { read_wisdom(file); });
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
  CHECK_THAT(replaced("\"schema\":2", "\"schema\":7"), ContainsSubstring("") && !ContainsSubstring("none"));
  write_file(file, sealed(std::string(good).replace(good.find("\"schema\":2"), 10, "\"schema\":7")));
  CHECK(read_wisdom(file).foreign_records == 1);
  CHECK(read_wisdom(file).records.size() == 1);

  std::string other_schema = good;
  other_schema[good.find("jitgemm\n") + 8] = 9;
  write_file(file, sealed(other_schema));
  CHECK(read_wisdom(file).foreign_kernels == 1);
  CHECK(read_wisdom(file).kernels.size() == 1);
}

TEST_CASE("A kernel that has changed since it was listed is not carried on", "[wisdom]") {
  const TemporaryDirectory directory;
  sample_wisdom(directory.path());
  Home home(directory.path() / "sample");
  const Wisdom wisdom = home.collect();
  const fs::path entry = file_of(home.directory, sample_entry("a", 300)), out = directory.path() / "out";
  std::string bytes = file_text(entry);
  bytes[200] ^= 1;
  write_file(entry, bytes);
  CHECK_THAT(io_error([&] { write_wisdom(out, wisdom.records, wisdom.kernels); }),
             ContainsSubstring("checksum differs"));
  CHECK_FALSE(fs::exists(out));
  CHECK(home.collect().kernels.size() == 1);  // a new list leaves it out
}

TEST_CASE("What cannot be written is an error that says so, and leaves no half of a file", "[wisdom]") {
  const TemporaryDirectory directory;
  const std::string good = sample_wisdom(directory.path());
  const fs::path sample = directory.path() / "sample.wisdom";
  SECTION("into a folder that is not there") {
    const fs::path out = directory.path() / "none" / "out";
    CHECK_THAT(io_error([&] { write_wisdom(out, {}, {}); }), ContainsSubstring("cannot write " + out.string()));
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
    CHECK_THAT(io_error([&] { import_wisdom({read_wisdom(sample)}, db, small); }),
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
