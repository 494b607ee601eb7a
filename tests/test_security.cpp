// Who is trusted: what others could have written is not used, with one line that says so, and what is theirs is not
// touched.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <csignal>
#include <cstdio>
#include <functional>

#include "backend/emulator/temporary_directory.hpp"
#include "cache_samples.hpp"
#include "catch.hpp"
#include "command.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "tune/calibration_file.hpp"
#include "tuning_samples.hpp"
#include "util/environment.hpp"
#include "util/output_file.hpp"
#include "util/trust.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

constexpr uid_t nobody = 65534;
constexpr const char* precious = "precious\n";
const NormalProblem tuned = shape(1024, 1024, 1024);

/// A user's cache directory with one of everything in it, and a file that the library has no business with.
struct Site {
  TemporaryDirectory directory;
  fs::path home = directory.path() / "home", victim = directory.path() / "victim";
  CacheEntry kernel = sample_entry("old");
  fs::path kernel_file = file_of(home, kernel), tuning = home / "tuning.jsonl", rates = home / "calibration.jsonl",
           sum = home / "bytes", kernel_lock = home / "locks" / key_of(kernel).digest,
           tuning_lock = home / "tuning.jsonl.lock";

  Site() {
    KernelCache cache = cache_at(home);
    ask(cache, kernel);
    TuningDb(tuning).add(record_of(tuned, 32));
    add_rates(rates, h200, DeviceRates());
    write_file(victim, precious);
    chmod(victim.c_str(), 0600);
  }
};

using Step = std::function<void(const Site&)>;
using Place = fs::path Site::*;

// What another user may have done.
Step mode(Place place, mode_t bits) {
  return [=](const Site& site) { REQUIRE(chmod((site.*place).c_str(), bits) == 0); };
}
Step given_away(Place place) {
  return [=](const Site& site) { REQUIRE(chown((site.*place).c_str(), nobody, nobody) == 0); };
}
Step link_to_victim(Place place) {
  return [=](const Site& site) {
    fs::remove(site.*place);
    fs::create_symlink(site.victim, site.*place);
  };
}
/// A link to a copy of what was there.
Step link_to_copy(Place place) {
  return [=](const Site& site) {
    const fs::path copy = (site.*place).string() + ".copy";
    fs::rename(site.*place, copy);
    fs::create_symlink(copy, site.*place);
  };
}
Step fifo(Place place) {
  return [=](const Site& site) {
    fs::remove(site.*place);
    REQUIRE(mkfifo((site.*place).c_str(), 0600) == 0);
  };
}

// What the library then does.
void make_a_context(const Site& site) {
  Context context({.device = Device::compile_only,
                   .architecture = "sm_90a",
                   .tuning = Tuning::cached,
                   .cache_dir = site.home.string()});
  CHECK(context.plan({.m = 1024, .n = 1024, .k = 1024}).source == PlanSource::model);
}
void look_for_the_kernel(const Site& site) {
  KernelCache cache = cache_at(site.home);
  CHECK(ask(cache, site.kernel));
  CHECK_FALSE(ask(cache, site.kernel));  // the one compiled has replaced it
  struct stat status{};
  CHECK((lstat(site.kernel_file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid()));
}
void store_kernels(const Site& site) {
  KernelCache cache = cache_at(site.home);
  for (const char* name : {"one", "two", "three"}) CHECK(ask(cache, sample_entry(name)));
}
void compile_the_kernel_again(const Site& site) {
  fs::remove(site.kernel_file);
  KernelCache cache = cache_at(site.home);
  CHECK(ask(cache, site.kernel));
}
void look_for_a_result(const Site& site) { CHECK(TuningDb(site.tuning).find(tuned, h200).match == Match::none); }
void add_a_result(const Site& site) { TuningDb(site.tuning).add(record_of(shape(8, 8, 8))); }
void read_calibration(const Site& site) { CHECK_FALSE(read_rates(site.rates, h200)); }
void use_as_system_layer(const Site& site) {
  const ScopedEnvironment system("JITGEMM_SYSTEM_CACHE_DIR", site.home.c_str());
  Context context({.device = Device::compile_only,
                   .architecture = "sm_90a",
                   .tuning = Tuning::cached,
                   .cache_dir = (site.directory.path() / "own").string()});
  CHECK(context.plan({.m = 1024, .n = 1024, .k = 1024}).source == PlanSource::model);
}
void use_kernel_as_system_layer(const Site& site) {
  KernelCache cache({.directory = site.directory.path() / "own", .system_directory = site.home});
  CHECK(ask(cache, site.kernel));
}

struct Try {
  const char* what;
  Step done, use;
  std::vector<const char*> lines;  ///< a word of each that is logged
  bool needs_root = false;
};

const std::vector<Try> tries{
    {"cache directory writable by its group", mode(&Site::home, 0770), make_a_context, {"writable by its group"}},
    {"one of a project, 2775", mode(&Site::home, 02775), make_a_context, {"writable by its group"}},
    {"one like /tmp, 1777", mode(&Site::home, 01777), make_a_context, {"writable by everyone"}},
    {"one of another user", given_away(&Site::home), make_a_context, {"owned by another user"}, true},
    {"kernel: a link", link_to_copy(&Site::kernel_file), look_for_the_kernel, {"it is a link"}},
    {"kernel: writable by its group",
     mode(&Site::kernel_file, 0660),
     look_for_the_kernel,
     {"it is writable by its group"}},
    {"kernel: of another user", given_away(&Site::kernel_file), look_for_the_kernel, {"owned by another user"}, true},
    {"kernel: a FIFO", fifo(&Site::kernel_file), look_for_the_kernel, {"not a regular file"}},
    {"kernel's lock: a link", link_to_victim(&Site::kernel_lock), compile_the_kernel_again, {"not used as a lock"}},
    {"kernel's lock: a FIFO", fifo(&Site::kernel_lock), compile_the_kernel_again, {"not used as a lock"}},
    {"sum of bytes: a link", link_to_victim(&Site::sum), store_kernels, {"counted each time: it is a link"}},
    {"sum of bytes: writable by everyone", mode(&Site::sum, 0666), store_kernels, {"it is writable by everyone"}},
    {"tuning results: a link, to read",
     link_to_copy(&Site::tuning),
     look_for_a_result,
     {"cannot be read (it is a link)"}},
    {"tuning results: a link, to write",
     link_to_victim(&Site::tuning),
     add_a_result,
     {"cannot be written", "cannot be read"}},
    {"tuning results: writable by everyone",
     mode(&Site::tuning, 0666),
     look_for_a_result,
     {"it is writable by everyone"}},
    {"tuning results: of another user", given_away(&Site::tuning), look_for_a_result, {"owned by another user"}, true},
    {"tuning results: a FIFO", fifo(&Site::tuning), look_for_a_result, {"not a regular file"}},
    {"tuning results: their directory",
     mode(&Site::home, 0775),
     look_for_a_result,
     {"its directory is writable by its group"}},
    {"lock of tuning results: a link", link_to_victim(&Site::tuning_lock), add_a_result, {"not used as a lock"}},
    {"lock of tuning results: of another user",
     given_away(&Site::tuning_lock),
     add_a_result,
     {"not used as a lock"},
     true},
    {"calibration: a link", link_to_copy(&Site::rates), read_calibration, {"it is a link"}},
    {"calibration: writable by its group", mode(&Site::rates, 0664), read_calibration, {"it is writable by its group"}},
    {"calibration: of another user", given_away(&Site::rates), read_calibration, {"owned by another user"}, true},
    {"system layer writable by its group", mode(&Site::home, 0775), use_as_system_layer, {"JITGEMM_SYSTEM_CACHE_DIR"}},
    {"system layer of another user", given_away(&Site::home), use_as_system_layer, {"owned by another user"}, true},
    {"system layer's results of another user",
     given_away(&Site::tuning),
     use_as_system_layer,
     {"system tuning database"},
     true},
    {"system layer's kernel: a link", link_to_copy(&Site::kernel_file), use_kernel_as_system_layer, {"it is a link"}},
    {"system layer's kernel of another user",
     given_away(&Site::kernel_file),
     use_kernel_as_system_layer,
     {"owned by another user"},
     true},
};

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += by.size())
    text.replace(at, word.size(), by);
  return text;
}

}  // namespace

TEST_CASE("What others could have written is not used, and gets one line that says what to do", "[security]") {
  const ScopedEnvironment none("JITGEMM_SYSTEM_CACHE_DIR", nullptr);
  std::string table = "| tried | the line that it gets |\n| --- | --- |\n";
  for (const Try& row : tries) {
    INFO(row.what);
    if (row.needs_root && geteuid() != 0) {
      table += std::string("| ") + row.what + " | (only root can try) |\n";
      continue;
    }
    const Site site;
    row.done(site);
    const CapturedLog log;
    row.use(site);
    INFO(log.text());
    const std::vector<std::string> lines = lines_of(log.text());
    CHECK(lines.size() == row.lines.size());
    for (std::size_t i = 0; i < std::min(lines.size(), row.lines.size()); ++i) {
      CHECK_THAT(lines[i], ContainsSubstring(row.lines[i]));
      CHECK((ContainsSubstring("; ").match(lines[i]) || ContainsSubstring("): ").match(lines[i])));  // a way out
      std::string line = replaced(lines[i], site.directory.path().string(), "$DIR");
      line = replaced(std::move(line), key_of(site.kernel).digest, "DIGEST");
      table += std::string("| ") + row.what + " | " + line + " |\n";
    }
    CHECK(file_text(site.victim) == precious);
  }
  std::printf("%s", table.c_str());
}

TEST_CASE("What is the user's own or root's, and nobody else's to write, is used without a word", "[security]") {
  const Site site;
  const CapturedLog log;
  chmod(site.home.c_str(), 0755);
  for (const fs::path& file : {site.kernel_file, site.tuning, site.rates}) chmod(file.c_str(), 0644);
  fs::create_directory_symlink(site.home, site.directory.path() / "link");
  const auto check = [&](const fs::path& home) {
    KernelCache cache({.directory = site.directory.path() / std::to_string(geteuid()), .system_directory = home});
    expect(cache.find(key_of(site.kernel), {}).has_value(), "the kernel");
    expect(TuningDb(std::nullopt, home / "tuning.jsonl").find(tuned, h200).match == Match::exact, "the result");
    expect(read_rates(home / "calibration.jsonl", h200).has_value(), "the rates");
    expect(log.text().empty(), log.text().c_str());
    return 0;
  };
  check(site.home);
  check(site.directory.path() / "link");
  if (geteuid() != 0) return;
  chmod(site.directory.path().c_str(), 0777);
  CHECK(wait_for(spawn([&] {
          expect(become_nobody(), "become nobody");
          check(site.home);
          return check(site.directory.path() / "link");
        })) == 0);
}

TEST_CASE("A file that is refused is as it was before", "[security]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "file";
  write_file(file, precious);
  chmod(file.c_str(), 0660);
  std::string why;
  CHECK(open_trusted(file, O_WRONLY | O_CREAT | O_TRUNC, &why).get() < 0);
  CHECK(errno == EPERM);
  CHECK(why == "it is writable by its group");
  CHECK(file_text(file) == precious);
  chmod(file.c_str(), 0600);
  CHECK(open_trusted(file, O_WRONLY | O_TRUNC, &why).get() >= 0);
  CHECK(file_text(file).empty());
  CHECK(open_trusted(directory.path() / "none" / "file", O_RDONLY, &why).get() < 0);
  CHECK(errno == ENOENT);
}

TEST_CASE("A home directory of another user's, as under sudo that keeps HOME, is not used", "[security]") {
  if (geteuid() != 0) SKIP("only root can give a directory away");
  const TemporaryDirectory directory;
  REQUIRE(chown(directory.path().c_str(), nobody, nobody) == 0);
  const ScopedEnvironment own("JITGEMM_CACHE_DIR", nullptr), xdg("XDG_CACHE_HOME", nullptr),
      home("HOME", directory.path().c_str());
  const CapturedLog log;
  CHECK_FALSE(KernelCache().directory());
  CHECK(fs::is_empty(directory.path()));
  CHECK(log.count("no home directory of this user's own; set JITGEMM_CACHE_DIR") == 1);
}

TEST_CASE("Strange values of JITGEMM_CACHE_DIR are an error or one line, and harm nothing", "[security]") {
  const TemporaryDirectory directory;
  write_file(directory.path() / "file", precious);
  const std::string file = (directory.path() / "file").string();
  for (const std::string& value :
       {file, file + "/below", std::string("/dev/null"), std::string("/proc/self/fd"), "/" + std::string(5000, 'x'),
        directory.path().string() + "/" + std::string(300, 'y')}) {
    INFO(value);
    const ScopedEnvironment variable("JITGEMM_CACHE_DIR", value.c_str());
    const CapturedLog log;
    KernelCache cache;
    for (int i = 0; i < 2; ++i) CHECK(ask(cache, sample_entry("a")));
    CHECK(log.count("warning") == 1);
  }
  CHECK(file_text(file) == precious);
  for (const char* value : {"relative", "./here", "~/jitgemm", "C:\\cache"}) {
    const ScopedEnvironment variable("JITGEMM_CACHE_DIR", value);
    CHECK_THAT(refusal(ErrorCode::invalid_option, [] { const KernelCache cache; }),
               ContainsSubstring("not an absolute path"));
  }
  // Odd, but a directory of one's own all the same.
  for (const char* name : {"with space", "new\nline", "\xff\xfe", "a/../b//c/./", "-rf", "%s%n{}"}) {
    const std::string path = directory.path().string() + "/" + name;
    const ScopedEnvironment variable("JITGEMM_CACHE_DIR", path.c_str());
    const CapturedLog log;
    KernelCache cache;
    CHECK(ask(cache, sample_entry("a")));
    CHECK_FALSE(ask(cache, sample_entry("a")));
    CHECK(log.text().empty());
  }
}

TEST_CASE("A set-uid program takes nothing from the environment", "[security]") {
  NEEDS_COMMAND();
  if (geteuid() != 0) SKIP("only root can make a program that runs as another user");
  const TemporaryDirectory directory;
  struct statvfs mounted{};
  REQUIRE(statvfs(directory.path().c_str(), &mounted) == 0);
  if ((mounted.f_flag & ST_NOSUID) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0)
    SKIP("set-uid has no effect here");
  const fs::path copy = directory.path() / "jitgemm", err = directory.path() / "err";
  fs::copy_file(command_path(), copy);
  chmod(directory.path().c_str(), 0755);
  const auto run = [&] {
    const std::string line = "cd / && HOME=/ JITGEMM_CACHE_DIR=some/where '" + copy.string() +
                             "' cache ls >/dev/null 2>'" + err.string() + "' </dev/null";
    if (std::system(line.c_str()) == -1) throw std::runtime_error("system");
    return file_text(err);
  };
  CHECK_THAT(run(), ContainsSubstring("JITGEMM_CACHE_DIR=some/where"));
  REQUIRE(chown(copy.c_str(), nobody, nobody) == 0);
  REQUIRE(chmod(copy.c_str(), 04755) == 0);
  CHECK_THAT(run(), ContainsSubstring("jitgemm: error: ") && !ContainsSubstring("some/where"));
}

TEST_CASE("An empty variable counts as none", "[security]") {
  const ScopedEnvironment empty("JITGEMM_TEST_VARIABLE", "");
  CHECK_FALSE(environment("JITGEMM_TEST_VARIABLE"));
  const ScopedEnvironment set("JITGEMM_TEST_VARIABLE", "x");
  CHECK(environment("JITGEMM_TEST_VARIABLE") == "x");
}

TEST_CASE("A limit on file sizes ends no write with SIGXFSZ, and leaves the process's signals as they were",
          "[security]") {
  const TemporaryDirectory directory;
  const auto pending = [] {
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, SIGXFSZ) == 1;
  };
  const int status = wait_for(spawn([&] {
    signal(SIGXFSZ, SIG_DFL);
    KernelCache cache = cache_at(directory.path() / "cache");
    TuningDb db(directory.path() / "cache" / "tuning.jsonl");
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const CapturedLog log;
    for (const rlim_t bytes : {0, 1, 100}) {
      const rlimit low{bytes, limit.rlim_max};
      setrlimit(RLIMIT_FSIZE, &low);
      const CacheEntry entry = sample_entry("a");
      expect(ask(cache, entry), "the kernel is compiled, and not kept");
      db.add(record_of(tuned));
      std::string why;
      expect(!write_output(directory.path() / "out", std::string(1000, 'x'), &why), "the file is too large");
      expect(!refusal(ErrorCode::io, [&] { add_rates(directory.path() / "rates", h200, DeviceRates()); }).empty(),
             "an error");
      expect(!refusal(ErrorCode::io, [&] { emulator::write_file(directory.path() / "text", std::string(1000, 'x')); })
                  .empty(),
             "an error");
      expect(!pending(), "no signal is left behind");
    }
    sigset_t blocked, after;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    raise(SIGXFSZ);
    std::string why;
    expect(!write_output(directory.path() / "out", std::string(1000, 'x'), &why), "the file is too large");
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    expect(pending() && sigismember(&after, SIGXFSZ) == 1, "the program's own signal waits where it was");
    return 0;
  }));
  CHECK(status == 0);
}
