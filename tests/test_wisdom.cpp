#include <algorithm>
#include <set>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "errors.hpp"
#include "jit/cache_entry.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/jitgemm.hpp"
#include "wisdom_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
namespace fs = std::filesystem;

TEST_CASE("Wisdom exported and imported gives the same answers and the same kernels", "[wisdom]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "a.wisdom";
  const std::string bytes = sample_wisdom(directory.path());
  write_file(file, bytes);
  Home from(directory.path() / "sample"), to(directory.path() / "to");
  const TakenWisdom done = to.import_from(file);
  CHECK(done.records == 2);
  CHECK(done.kernels == 2);
  for (const char* name : {"a", "b"}) {
    const CacheEntry entry = sample_entry(name, *name == 'a' ? 300 : 200);
    CHECK(file_text(file_of(to.directory, entry)) == file_text(file_of(from.directory, entry)));
    CHECK_FALSE(ask(to.cache, entry));
  }
  for (const NormalProblem& problem : {first, second, shape(1024, 1024, 1100)}) {
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
  const TakenWisdom again = to.import_from(file);
  CHECK(again.records == 0);
  CHECK(again.kernels == 0);
  CHECK(contents(to.directory) == before);
}

TEST_CASE(
    "After an import the first call makes the same choice; the emulator's kernels, which are host code, do not travel",
    "[wisdom][security]") {
  const TemporaryDirectory directory;
  const fs::path from = directory.path() / "from", to = directory.path() / "to", file = directory.path() / "file";
  const NormalProblem problem = normalise({.m = 48, .n = 64, .k = 96});
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
  const StoredWisdom collected = Home(from).collect();
  CHECK(collected.kernels.empty());
  CHECK(collected.strange_kernels == 1);

  // Nor from a file of somebody who writes them all the same.
  const auto entries = KernelCache({.directory = from}).list(false);
  REQUIRE(entries.size() == 1);
  write_wisdom_file(file, collected.records,
                    {{.digest = entries[0].digest,
                      .architecture = entries[0].entry.binary.architecture,
                      .file = entries[0].path,
                      .bytes = entries[0].bytes}});
  const StoredWisdom wisdom = read_wisdom_file(file);
  CHECK(wisdom.kernels.empty());
  CHECK(wisdom.strange_kernels == 1);
  const TakenWisdom done = Home(to).import_from(file, Kernels::take);
  CHECK(done.records == 1);
  CHECK(done.kernels == 0);

  const auto [warm, same_plan] = run(to);
  CHECK(warm.compiles == 1);
  CHECK(warm.disk_hits == 0);
  CHECK(same_plan.config == plan.config);
  CHECK(same_plan.why == plan.why);
}

TEST_CASE("Kernels are imported only when told to, and then the cache has them", "[wisdom][security]") {
  const TemporaryDirectory directory;
  sample_wisdom(directory.path());
  Home home(directory.path() / "home");
  const TakenWisdom left = home.import_from(directory.path() / "sample.wisdom", Kernels::leave);
  CHECK(left.records == 2);
  CHECK(left.kernels == 0);
  CHECK(home.cache.list(true).empty());
  CHECK(home.import_from(directory.path() / "sample.wisdom", Kernels::take).kernels == 2);
  CHECK_FALSE(ask(home.cache, sample_entry("a", 300)));
}

TEST_CASE("A kernel that is given out for another's is not taken from a wisdom file", "[wisdom][security]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "forged.wisdom", forged = directory.path() / "forged";
  const CacheEntry asked = sample_entry("asked");
  const auto write = [&](const CacheKey& key, const CacheEntry& entry, const std::string& architecture) {
    const std::string bytes = pack_entry(key, entry);
    write_file(forged, bytes);
    write_wisdom_file(file, {},
                      {{.digest = key.digest, .architecture = architecture, .file = forged, .bytes = bytes.size()}});
  };
  Home home(directory.path() / "home");
  const auto refused = [&] {
    const StoredWisdom wisdom = read_wisdom_file(file);
    CHECK(wisdom.strange_kernels == 1);
    CHECK(home.import_from(file, Kernels::take).kernels == 0);
    CHECK(home.cache.list(true).empty());
  };
  SECTION("another source under this one's digest") {
    write(key_of(asked), sample_entry("another"), "sm_90a");
    refused();
  }
  SECTION("this source for another architecture") {
    CacheEntry entry = asked;
    entry.source.architecture = entry.binary.architecture = "sm_80";
    write(key_of(asked), entry, "sm_80");
    refused();
  }
  SECTION("under the digest by which the emulator would ask for it, as made by NVRTC") {
    write(cache_key(asked.source, make_emulator_backend({})->compiler_kind()), asked, "sm_90a");
    refused();
  }
  SECTION("an architecture in the manifest that it is not for") {
    write(key_of(asked), asked, "sm_80");
    CHECK_THAT(refusal(ErrorCode::io, [&] { read_wisdom_file(file); }),
               Catch::Matchers::ContainsSubstring("not for the architecture that its manifest says"));
  }
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
  DeviceInfo late = h200;  // of a Context whose launches do not start early
  late.dependent_launch = false;
  const std::string used_late = store(generate(first, record_of(first).config, late));
  store(generate(first, record_of(first).config, a100));
  store(sample_entry("another").source);

  CHECK(home.collect().records.size() == 3);
  CHECK(home.collect().kernels.size() == 4);
  const StoredWisdom of_a100 = home.collect({.architecture = "sm_80"});
  CHECK(of_a100.records.size() == 1);
  CHECK(of_a100.kernels.size() == 1);
  CHECK(home.collect({.kernels = false}).kernels.empty());
  const StoredWisdom of_first =
      home.collect({.architecture = "sm_90a", .record = [](const TuningRecord& r) { return r.problem.m == 1024; }});
  CHECK(of_first.records.size() == 1);
  std::set<std::string> digests;
  for (const StoredKernel& kernel : of_first.kernels) {
    digests.insert(kernel.digest);
    CHECK(kernel.current);
  }
  CHECK(digests == std::set{used, used_late});
  CHECK(home.collect({.record = [](const TuningRecord&) { return false; }}).kernels.empty());
}

TEST_CASE("A kernel is current while the templates and the version are", "[wisdom]") {
  NormalProblem packed = normalise({.m = 100, .n = 101, .k = 103});
  KernelConfig packing =
      parse_kernel_config("sm90 128x128x64 group_m=8 stages=4 warps=8 schedule=data_parallel pack=ab");
  for (const DataType type : {f16, e4m3, tf32, f32, f64, s8}) {
    const NormalProblem p = normalise({.m = 256,
                                       .n = 256,
                                       .k = 256,
                                       .a = {type},
                                       .b = {type},
                                       .d = {type == s8    ? s32
                                             : type == f64 ? f64
                                                           : f32}});
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
      std::vector<StoredWisdom> all(2);
      all[0].records = {records[0]}, all[1].records = {records[1]};
      CHECK(to_json_line(merge_stored(all).records.at(0)) == to_json_line(better));
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
  write_wisdom_file(file, {dated(record_of(first, 32), "2026-11-20", 3), old}, {});
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
  const StoredWisdom merged =
      merge_stored({read_wisdom_file(sample), read_wisdom_file(directory.path() / "other.wisdom")});
  write_wisdom_file(out, merged.records, merged.kernels);
  CHECK(read_wisdom_file(out).records.size() == 3);
  CHECK(read_wisdom_file(out).kernels.size() == 3);
  const StoredWisdom same = merge_stored({read_wisdom_file(sample), read_wisdom_file(sample)});
  write_wisdom_file(sample, same.records, same.kernels);  // over one that it reads from
  CHECK(file_text(sample) == bytes);
}

TEST_CASE("The difference of two is what is in one only and what is chosen otherwise", "[wisdom]") {
  StoredWisdom a, b;
  a.records = {record_of(first, 32), record_of(second), record_of(shape(64, 64, 64))};
  b.records = {dated(record_of(first, 64), "", 25), record_of(second), record_of(first, 32, device_info_for("sm_80"))};
  a.kernels = {{.digest = "x"}, {.digest = "y"}};
  b.kernels = {{.digest = "y"}};
  const StoredDiff diff = diff_stored(a, b);
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
  CHECK(diff_stored(a, a).equal());
}
