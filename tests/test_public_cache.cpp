// jitgemm/cache.hpp: what a program can do with the cache on disk.
#include <atomic>
#include <thread>

#include "cache_samples.hpp"
#include "catch.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "tuning_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// A cache directory with two kernels, the second used last, and a tuning result.
struct Site {
  TemporaryDirectory root;
  fs::path directory = root.path() / "cache";
  CacheEntry old = sample_entry("old", 5000), young = sample_entry("young", 9000);
  ScopedEnvironment no_system{"JITGEMM_SYSTEM_CACHE_DIR", nullptr};

  Site() {
    KernelCache cache = cache_at(directory);
    cache.store(key_of(old), old);
    cache.store(key_of(young), young);
    make_older(file_of(directory, old), 7200);
    TuningDb(directory / "tuning.jsonl").add(record_of(shape(128, 96, 64), 32));
  }
  fs::path path(const char* name) const { return root.path() / name; }
  Cache cache() const { return Cache(directory.string()); }
};

/// What the call is refused with, which logs nothing.
template <typename Call>
std::string io_refusal(Call call) {
  const CapturedLog log;
  std::string what = refusal(ErrorCode::io, call);
  CHECK(log.text().empty());
  return what;
}

void flip_a_byte(const fs::path& file) {
  std::string bytes = file_text(file);
  bytes[bytes.size() - 100] ^= 1;
  write_file(file, bytes);
  make_older(file, 7200);
}

std::vector<std::string> digests(const std::vector<CachedKernel>& kernels) {
  std::vector<std::string> digests;
  for (const CachedKernel& kernel : kernels) digests.push_back(kernel.digest);
  return digests;
}

}  // namespace

TEST_CASE("A Cache lists its kernels with their facts, last used first", "[cache][public]") {
  const Site site;
  const Cache cache = site.cache();
  CHECK(cache.directory() == site.directory.string());
  CHECK(cache.max_bytes() == std::uint64_t(1) << 30);
  const std::vector<CachedKernel> kernels = cache.kernels();
  REQUIRE(digests(kernels) == std::vector{key_of(site.young).digest, key_of(site.old).digest});
  const CachedKernel& kernel = kernels[0];
  CHECK(kernel.path == file_of(site.directory, site.young).string());
  CHECK(kernel.fault.empty());
  CHECK(kernel.bytes == fs::file_size(kernel.path));
  CHECK(kernel.last_used - kernels[1].last_used >= 7200);
  CHECK_FALSE(kernel.read_only);
  CHECK(kernel.entry == "gemm");
  CHECK(kernel.architecture == "sm_90a");
  CHECK(kernel.config == "config of young");
  CHECK(kernel.compiler == "nvrtc 13.0.88");
  CHECK(kernel.registers == 168);
  CHECK(kernel.spill_bytes == 8);
}

TEST_CASE("A Cache finds damage, drops it, keeps to a bound and clears; tuning results stay", "[cache][public]") {
  const Site site;
  Cache cache = site.cache();
  flip_a_byte(file_of(site.directory, site.old));
  CHECK(cache.kernels()[1].fault.empty());  // its head is whole
  const std::vector<CachedKernel> verified = cache.verify();
  REQUIRE(verified.size() == 2);
  CHECK(verified[0].fault.empty());
  CHECK(verified[1].fault == "checksum differs");
  CHECK(cache.prune() == verified[1].bytes);
  CHECK(cache.prune() == 0);
  CHECK(digests(cache.kernels()) == std::vector{key_of(site.young).digest});

  const CacheEntry third = sample_entry("third", 2000);
  cache_at(site.directory).store(key_of(third), third);
  make_older(file_of(site.directory, site.young), 7200);
  CHECK(cache.prune(5000) == verified[0].bytes);  // the least recently used one
  CHECK(digests(cache.kernels()) == std::vector{key_of(third).digest});
  CHECK(cache.clear() > 0);
  CHECK(cache.kernels().empty());
  CHECK(cache.tuning_results().size() == 1);
}

TEST_CASE("A Cache has the tuning results as their file has them", "[cache][public]") {
  const Site site;
  const Cache cache = site.cache();
  REQUIRE(cache.tuning_results().size() == 1);
  const TuningResult result = cache.tuning_results()[0];
  CHECK(result.problem.m == 128);
  CHECK(result.device == h200.name);
  CHECK(result.architecture == "sm_90a");
  CHECK(result.sm_count == h200.sm_count);
  CHECK_FALSE(result.emulated);
  CHECK(result.config.block_m == 32);
  CHECK(result.median_us == 12.5);
  CHECK(result.spread == 0.02);
  CHECK(result.library == JITGEMM_VERSION);
  CHECK(result.date.size() == 10);
  CHECK(result.json() + "\n" == file_text(site.directory / "tuning.jsonl"));

  TuningRecord rich = record_of(shape(256, 64, 32));
  rich.constraints = {.workspace_bytes = 4096, .sms = 7};
  rich.runners_up = {{rich.config, 13.5}};
  rich.candidates = "abc";
  rich.date = "2026-11-21";
  rich.emulated = true;
  TuningDb(site.directory / "tuning.jsonl").add(rich);
  REQUIRE(cache.tuning_results().size() == 2);
  CHECK(cache.tuning_results()[1].json() == to_json_line(rich));
  CHECK(to_string(cache.tuning_results()[1].constraints) == "workspace_bytes=4096 sms=7");

  TuningResult made_up = result;
  made_up.architecture = "sm_90";
  CHECK_THAT(refusal(ErrorCode::invalid_option, [&] { made_up.json(); }), ContainsSubstring("architecture=sm_90"));
}

TEST_CASE("A cache directory that cannot be used is one Error, and stays as it is", "[cache][public][security]") {
  const Site site;
  CHECK_THAT(io_refusal([&] { Cache(site.path("none").string()); }),
             ContainsSubstring("there is no cache directory " + site.path("none").string()) &&
                 ContainsSubstring("jitgemm warm"));
  CHECK_FALSE(fs::exists(site.path("none")));
  CHECK_THAT(refusal(ErrorCode::invalid_option, [] { Cache(""); }), ContainsSubstring("cache_dir is an empty path"));

  write_file(site.path("file"), "");
  const auto refused = [](const fs::path& directory, const std::string& why) {
    CHECK_THAT(io_refusal([&] { Cache(directory.string()); }),
               ContainsSubstring(directory.string() + " cannot be used: ") && ContainsSubstring(why + "; set ") &&
                   ContainsSubstring("; set cache_dir (--cache-dir) to a directory of your own"));
  };
  refused(site.path("file"), "Not a directory");
  refused(site.path("file") / "cache", "Not a directory");
  fs::permissions(site.directory, fs::perms(0770));
  refused(site.directory, "writable by its group");
  fs::permissions(site.directory, fs::perms(0700));
  {
    const ScopedEnvironment named("JITGEMM_CACHE_DIR", site.path("file").c_str());
    CHECK_THAT(io_refusal([] { Cache(); }), ContainsSubstring("set JITGEMM_CACHE_DIR to a directory of your own"));
  }
  const ScopedEnvironment none("JITGEMM_CACHE_DIR", nullptr), xdg("XDG_CACHE_HOME", nullptr), home("HOME", "some");
  CHECK_THAT(io_refusal([] { Cache(); }), ContainsSubstring("no cache directory can be used: HOME=some"));

  fs::permissions(site.directory / "tuning.jsonl", fs::perms(0666));
  const Cache cache = site.cache();
  CHECK_THAT(io_refusal([&] { static_cast<void>(cache.tuning_results()); }),
             ContainsSubstring("tuning.jsonl are not used: it is writable by everyone; correct the file's owner"));
  CHECK(cache.kernels().size() == 2);
}

TEST_CASE("Another user's cache directory is refused, and one that may not be read", "[cache][public][security]") {
  if (geteuid() != 0) SKIP("only root can become another user");
  const Site site;
  fs::permissions(site.root.path(), fs::perms(0755));
  const auto as_nobody = [&](const char* why) {
    return wait_for(spawn([&] {
      expect(become_nobody(), "become nobody");
      const std::string what = error_of([&] { site.cache(); }).what();
      expect(what.find(why) != std::string::npos, what.c_str());
      return 0;
    }));
  };
  CHECK(as_nobody("cannot be used: Permission denied; ") == 0);
  REQUIRE(chown(site.directory.c_str(), 65534, 65534) == 0);
  CHECK_THAT(io_refusal([&] { site.cache(); }), ContainsSubstring("owned by another user"));
  fs::permissions(site.directory, fs::perms(0300));
  CHECK(as_nobody("cannot be used: Permission denied; ") == 0);
}

TEST_CASE("Where only the system's cache can be used, a Cache reads that and changes nothing", "[cache][public]") {
  const Site site;
  write_file(site.path("file"), "");
  const ScopedEnvironment own("JITGEMM_CACHE_DIR", (site.path("file") / "cache").c_str()),
      system("JITGEMM_SYSTEM_CACHE_DIR", site.directory.c_str());
  Cache cache;
  CHECK(cache.directory().empty());
  REQUIRE(cache.kernels().size() == 2);
  CHECK(cache.kernels()[0].read_only);
  CHECK(cache.tuning_results().size() == 1);
  for (const auto& removal : {+[](Cache& cache) { cache.clear(); }, +[](Cache& cache) { cache.prune(0); }})
    CHECK_THAT(io_refusal([&] { removal(cache); }),
               ContainsSubstring("cannot be used: ") && ContainsSubstring("Not a directory; set JITGEMM_CACHE_DIR"));
  CHECK(cache.kernels().size() == 2);
  CHECK(cache.export_kernels(site.path("to").string()).kernels == 2);
}

TEST_CASE("A Cache exports what is whole, once, for others to read", "[cache][public]") {
  const Site site;
  const CacheEntry third = sample_entry("third");
  const fs::path system = site.path("system"), to = site.path("a") / "b";
  cache_at(system).store(key_of(third), third);
  cache_at(system).store(key_of(site.young), site.young);
  flip_a_byte(file_of(site.directory, site.old));
  const ScopedEnvironment layer("JITGEMM_SYSTEM_CACHE_DIR", system.c_str());
  const Cache cache = site.cache();
  CHECK(cache.kernels().size() == 4);
  const ScopedUmask umask(022);
  const CacheExport done = cache.export_kernels(to.string() + "/");
  CHECK(done.kernels == 2);
  CHECK(done.directory == to.string());
  CHECK(done.remark.empty());
  const ScopedEnvironment no_layer("JITGEMM_SYSTEM_CACHE_DIR", nullptr);  // of what is opened from here on
  KernelCache exported = cache_at(to);
  CHECK(exported.list(true).size() == 2);
  CHECK_FALSE(ask(exported, site.young));
  CHECK_FALSE(ask(exported, third));
  CHECK(fs::status(file_of(to, third)).permissions() == fs::perms(0644));

  CHECK(cache.export_binaries(site.path("binaries").string()).kernels == 2);
  const fs::path stem = site.path("binaries") / key_of(third).digest;
  CHECK(file_text(stem.string() + ".cubin") == third.binary.code);
  CHECK(file_text(stem.string() + ".cu") == third.source.text);
  {
    const ScopedUmask closed(077);
    CHECK_THAT(cache.export_kernels(site.path("closed").string()).remark, ContainsSubstring("chmod -R a+rX"));
  }
  fs::permissions(to, fs::perms(0775));
  CHECK_THAT(cache.export_kernels(to.string()).remark, ContainsSubstring("writable by its group"));

  write_file(site.path("file"), "");
  CHECK_THAT(io_refusal([&] { cache.export_kernels(site.path("file").string()); }),
             ContainsSubstring("cannot write ") && ContainsSubstring("; export elsewhere"));
  CHECK_THAT(refusal(ErrorCode::invalid_option, [&] { cache.export_binaries(""); }),
             ContainsSubstring("the folder is an empty path"));
  site.cache().clear();
  fs::remove_all(system);
  fs::create_directory(system);
  CHECK_THAT(io_refusal([&] { site.cache().export_kernels(to.string()); }), ContainsSubstring("`jitgemm warm` it"));
}

TEST_CASE("Threads and processes look after one cache while it grows, and nothing is lost", "[cache][public]") {
  const Site site;
  constexpr int count = 60;
  std::atomic<bool> stop = false;
  std::atomic<int> faults = 0;
  const auto look_after = [&](Cache cache) {
    for (int i = 0; !stop && i < 10000; ++i) {
      for (const auto& kernels : {cache.kernels(), cache.verify()})
        for (const CachedKernel& kernel : kernels) faults += !kernel.fault.empty() && kernel.fault.find("No such") != 0;
      if (cache.prune() != 0) ++faults;
      if (cache.tuning_results().empty()) ++faults;
      if (cache.export_kernels((site.path("to")).string()).kernels < 2) ++faults;
    }
  };
  const fs::path started = site.path("started"), done = site.path("done");
  const pid_t child = spawn([&] {
    Cache cache = site.cache();
    for (bool last = false; !last;) {  // once more when all is there
      last = fs::exists(done);
      expect(cache.prune() == 0, "nothing is damaged");
      expect(cache.export_kernels(site.path("of_child").string()).kernels >= 2, "two at least were here");
      write_file(started, "");
    }
    return 0;
  });
  while (!fs::exists(started)) std::this_thread::yield();
  const Cache shared = site.cache();
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back(look_after, shared);  // copies, of one and the same
  KernelCache writer = cache_at(site.directory);
  TuningDb results(site.directory / "tuning.jsonl");
  for (int i = 0; i < count; ++i) {
    const CacheEntry entry = sample_entry("new " + std::to_string(i));
    writer.store(key_of(entry), entry);
    results.add(record_of(shape(8 * i + 8, 8, 8)));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  write_file(done, "");
  CHECK(wait_for(child) == 0);
  CHECK(faults == 0);
  CHECK(shared.verify().size() == count + 2);
  CHECK(shared.tuning_results().size() == count + 1);
  CHECK(cache_at(site.path("of_child")).list(true).size() == count + 2);
}
