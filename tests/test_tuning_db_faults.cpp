// The tuning database under fire: killed writers, full disks, files that cannot be read or written. What may be in a
// file is in test_tuning_db_lines.cpp.
#include <sys/file.h>
#include <sys/resource.h>

#include <csignal>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "catch.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"
#include "sanitizers.hpp"
#include "tuning_files.hpp"
#include "util/line_file.hpp"
#include "util/publish_step.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> steps_seen;
std::string step_to_die_at;
void note_step(const char* step) { steps_seen.push_back(step); }
void die_at_step(const char* step) {
  if (step == step_to_die_at) kill(getpid(), SIGKILL);
}

/// Sets the hook of the publishing steps while it lives.
struct ScopedHook {
  explicit ScopedHook(PublishHook hook) { publish_hook = hook; }
  ~ScopedHook() { publish_hook = nullptr; }
};

const NormalProblem first = shape(512, 512, 512), second = shape(600, 600, 600), third = shape(700, 700, 700);

}  // namespace

TEST_CASE("A process killed before any step of an append loses no recorded result", "[tuning_db]") {
  const TemporaryDirectory directory;
  {
    const ScopedHook hook(note_step);
    steps_seen.clear();
    TuningDb(directory.path() / "steps.jsonl").add(record_of(first));
  }
  REQUIRE(steps_seen == std::vector<std::string>{"lock", "open", "write", "sync", "appended"});
  for (const std::string& step : steps_seen) {
    INFO(step);
    const fs::path file = directory.path() / (step + ".jsonl");
    CHECK(wait_for(spawn([&] {
            TuningDb db(file);
            db.add(record_of(first));
            step_to_die_at = step;
            publish_hook = die_at_step;
            db.add(record_of(second));
            return 0;
          })) == -SIGKILL);
    const CapturedLog log;
    const bool written = step == "sync" || step == "appended";
    CHECK(holds(file, first));
    CHECK(holds(file, second) == written);
    const auto begin = std::chrono::steady_clock::now();
    TuningDb db(file);
    db.add(record_of(third));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));  // the lock died with its holder
    CHECK(TuningDb(file).records().size() == (written ? 3 : 2));
    CHECK(log.text().empty());
  }
}

TEST_CASE("Eight processes that append and are killed at random lose nothing that add() has returned for",
          "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl";
  constexpr int processes = 8, rounds = 4;
  std::mt19937 random(7);
  std::vector<std::pair<int, int>> recorded;  // process, number
  TuningDb reader(file);
  for (int round = 0; round < rounds; ++round) {
    int acknowledged[2];
    REQUIRE(pipe(acknowledged) == 0);
    std::vector<pid_t> children;
    for (int process = 1; process <= processes; ++process) {
      children.push_back(spawn([&] {
        TuningDb db(file);
        for (int i = 1;; ++i) {
          const std::pair id(round * processes + process, i);
          db.add(record_of(shape(id.first, id.second, 64)));
          if (write(acknowledged[1], &id, sizeof id) != sizeof id) return 1;
        }
      }));
    }
    close(acknowledged[1]);
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(150)) {
      for (const TuningRecord& record : reader.records()) {  // none is ever half of one
        if (!equal(record.problem, shape(record.problem.m, record.problem.n, 64)) || record.median_us != 12.5) {
          FAIL("read " << to_json_line(record));
        }
      }
    }
    for (const pid_t child : children) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
      kill(child, SIGKILL);
    }
    for (const pid_t child : children) CHECK(wait_for(child) == -SIGKILL);
    for (std::pair<int, int> id; read(acknowledged[0], &id, sizeof id) == sizeof id;) recorded.push_back(id);
    close(acknowledged[0]);
  }
  REQUIRE(recorded.size() > 2 * processes);
  TuningDb fresh(file);
  for (TuningDb* db : {&reader, &fresh}) {
    std::set<std::pair<int, int>> found;
    for (const TuningRecord& record : db->records()) found.emplace(int(record.problem.m), int(record.problem.n));
    std::size_t lost = 0;
    for (const auto& id : recorded) lost += !found.contains(id);
    CHECK(lost == 0);
  }
}

TEST_CASE("Processes that cannot lock lose nothing, whatever is cut short between them", "[tuning_db]") {
  const TemporaryDirectory directory;
  static fs::path file;
  file = directory.path() / "tuning.jsonl";
  fs::create_directory(file.string() + ".lock");
  std::vector<pid_t> children;
  for (int process = 1; process <= 8; ++process) {
    children.push_back(spawn([&] {
      TuningDb db(file);
      for (int i = 1; i <= 20; ++i) db.add(record_of(shape(process, i, 64)));
      return 0;
    }));
  }
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  CHECK(TuningDb(file).records().size() == 160);

  // Another's append is cut short after this one has looked at the end and before it writes.
  const CapturedLog log;
  {
    const ScopedHook hook([](const char* step) {
      if (std::string(step) == "write") append(file, "{\"schema\":1,\"problem\":{\"m\"");
    });
    TuningDb(file).add(record_of(first));
  }
  CHECK(holds(file, first));
  CHECK(TuningDb(file).records().size() == 161);
}

TEST_CASE("A stopped process that holds the lock delays an append, no more", "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl", lock = file.string() + ".lock";
  const int descriptor = open(lock.c_str(), O_RDWR | O_CREAT, 0600);
  REQUIRE(flock(descriptor, LOCK_EX) == 0);
  const auto begin = std::chrono::steady_clock::now();
  TuningDb db(file);
  db.add(record_of(first));
  const auto took = std::chrono::steady_clock::now() - begin;
  CHECK(took > std::chrono::seconds(1));
  CHECK(took < std::chrono::seconds(10));
  CHECK(holds(file, first));
  close(descriptor);
}

TEST_CASE("A full disk costs a warning; what it did not take is written once there is room", "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl";
  const auto check = [&](const auto& fill, const auto& make_room) {
    const CapturedLog log;
    TuningDb db(file);
    db.add(record_of(shape(1, 1, 64)));
    fill();
    int records = 1;
    while (log.text().empty() && records < 100) db.add(record_of(shape(1, ++records, 64)));
    expect(log.count("cannot be written") == 1, log.text().c_str());
    for (int i = 0; i < 3; ++i) db.add(record_of(shape(1, ++records, 64)));
    expect(log.count("cannot be written") == 1, "there is one warning");
    expect(int(db.records().size()) == records, "this process knows all of them");
    expect(int(TuningDb(file).records().size()) >= records - 4, "those before it was full are still there");
    const bool torn = !file_text(file).ends_with('\n');
    make_room();
    db.add(record_of(shape(1, ++records, 64)));
    expect(int(TuningDb(file).records().size()) == records, "all are in the file");
    expect(log.count("skipped line") == (torn ? 1 : 0), log.text().c_str());
    return torn;
  };
  SECTION("of a small file system") {
    const int status = wait_for(spawn([&] {
      mount_tmpfs(directory.path(), 64 << 10);
      const fs::path filler = directory.path() / "filler";
      const auto fill = [&] {
        std::ofstream stream(filler);
        while (stream << 'x' << std::flush) {
        }
      };
      expect(check(fill, [&] { fs::remove(filler); }), "a record was cut short");
      return 0;
    }));
    if (status == not_allowed) SKIP("mounts are not allowed here");
    CHECK(status == 0);
  }
  SECTION("by a limit on file sizes, which is not to raise SIGXFSZ") {
    for (const auto disposition : {SIG_DFL, SIG_IGN}) {
      fs::remove(file);
      CHECK(wait_for(spawn([&] {
              signal(SIGXFSZ, disposition);
              rlimit limit{};
              getrlimit(RLIMIT_FSIZE, &limit);
              const rlimit low{2000, limit.rlim_max};
              check([&] { setrlimit(RLIMIT_FSIZE, &low); }, [&] { setrlimit(RLIMIT_FSIZE, &limit); });
              return 0;
            })) == 0);
    }
  }
}

TEST_CASE("A tuning database that is read-only still answers, with one warning for what it does not take",
          "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "db" / "tuning.jsonl";
  const auto check = [&] {
    const CapturedLog log;
    TuningDb db(file);
    expect(db.find(first, h200).match == Match::exact, "the old record is found");
    for (int i = 0; i < 3; ++i) db.add(record_of(shape(8000, 8000, 64 + i)));
    expect(db.find(shape(8000, 8000, 65), h200).match == Match::exact, "the new ones last as long as the process");
    expect(log.count("cannot be written") == 1 && log.count("warning") == 1, log.text().c_str());
    expect(TuningDb(file).records().size() == 1, "nothing was written");
  };
  SECTION("a file system mounted read-only") {
    const int status = wait_for(spawn([&] {
      mount_tmpfs(directory.path(), 1 << 20);
      TuningDb(file).add(record_of(first));
      remount_read_only(directory.path());
      check();
      return 0;
    }));
    if (status == not_allowed) SKIP("mounts are not allowed here");
    CHECK(status == 0);
  }
  SECTION("a file and a folder without write permission") {
    fs::permissions(directory.path(), fs::perms::all);
    CHECK(wait_for(spawn([&] {
            if (geteuid() == 0) expect(become_nobody(), "become nobody");
            TuningDb(file).add(record_of(first));
            fs::permissions(file, fs::perms::owner_read);
            fs::permissions(file.parent_path(), fs::perms::owner_read | fs::perms::owner_exec);
            check();
            fs::permissions(file.parent_path(), fs::perms::owner_all);
            return 0;
          })) == 0);
  }
  SECTION("a file that cannot be read either") {
    fs::permissions(directory.path(), fs::perms::all);
    CHECK(wait_for(spawn([&] {
            if (geteuid() == 0) expect(become_nobody(), "become nobody");
            TuningDb(file).add(record_of(first));
            fs::permissions(file, fs::perms::none);
            const CapturedLog log;
            TuningDb db(file);
            for (int i = 0; i < 3; ++i) db.add(record_of(shape(8000, 8000, 64 + i)));
            expect(db.records().size() == 3, "the new ones last as long as the process");
            expect(log.count("cannot be written") == 1 && log.count("cannot be read") == 1, log.text().c_str());
            fs::permissions(file, fs::perms::owner_all);
            db.add(record_of(second));
            expect(TuningDb(file).records().size() == 5, "once it can be written, all are");
            expect(db.records().size() == 5, "and read");
            return 0;
          })) == 0);
  }
}

TEST_CASE("What is no file in the place of the tuning database costs one warning each way", "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl";
  SECTION("a folder") { fs::create_directories(file / "content"); }
  SECTION("a FIFO, which is not waited for") { REQUIRE(mkfifo(file.c_str(), 0600) == 0); }
  SECTION("a device") { fs::create_symlink("/dev/null", file); }
  SECTION("a link to itself") { fs::create_symlink("tuning.jsonl", file); }
  SECTION("a link into a folder that is not there") { fs::create_symlink("nowhere/tuning.jsonl", file); }
  const CapturedLog log;
  TuningDb db(file);
  CHECK(db.find(first, h200).match == Match::none);
  for (int i = 0; i < 3; ++i) db.add(record_of(shape(512, 512, 512 + i)));
  CHECK(db.find(first, h200).match == Match::exact);
  CHECK(db.records().size() == 3);
  CHECK(log.count("cannot be read") == 1);
  CHECK(log.count("cannot be written") == 1);
  CHECK(log.count("warning") == 2);
  if (fs::is_directory(fs::symlink_status(file))) CHECK(fs::exists(file / "content"));

  // Once there is a file, it gets everything.
  fs::remove_all(file);
  append(file, line_of(record_of(second)));
  CHECK(db.records().size() == 4);
  db.add(record_of(third));
  CHECK(TuningDb(file).records().size() == 5);
  CHECK(db.records().size() == 5);
}

TEST_CASE("A link in the place of the tuning database is followed neither to read nor to write",
          "[tuning_db][security]") {
  const TemporaryDirectory directory;
  const fs::path elsewhere = directory.path() / "elsewhere";
  fs::create_symlink("elsewhere", directory.path() / "tuning.jsonl");
  for (const bool there : {false, true}) {
    if (there) append(elsewhere, line_of(record_of(first)));
    const std::string before = file_text(elsewhere);
    TuningDb db(directory.path() / "tuning.jsonl");
    CHECK(db.find(first, h200).match == Match::none);
    db.add(record_of(second));
    CHECK(db.find(second, h200).match == Match::exact);
    CHECK(fs::exists(elsewhere) == there);
    CHECK(file_text(elsewhere) == before);
  }
}

TEST_CASE("Without file descriptors left, the tuning database keeps what it knows", "[tuning_db]") {
  if (ubsan) SKIP(ubsan_opens_pipes);
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl";
  CHECK(wait_for(spawn([&] {
          const CapturedLog log;
          TuningDb db(file);
          db.add(record_of(first));
          append(file, line_of(record_of(second)));
          rlimit limit{};
          getrlimit(RLIMIT_NOFILE, &limit);
          const rlimit none{0, limit.rlim_max};
          setrlimit(RLIMIT_NOFILE, &none);
          db.add(record_of(third));
          expect(db.records().size() == 2 && !holds(db, second), "what it has read and measured");
          setrlimit(RLIMIT_NOFILE, &limit);
          expect(db.records().size() == 3, "then the rest, too");
          db.add(record_of(shape(8, 8, 8)));
          expect(TuningDb(file).records().size() == 4, "all are in the file");
          return 0;
        })) == 0);
}

TEST_CASE("gemm() never fails because of the tuning database", "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl";
  const CapturedLog log;
  const Problem problem{.m = 33, .n = 40, .k = 48};
  const std::vector<std::uint16_t> a(33 * 48, 0x3c00), b(48 * 40, 0x3c00);
  const auto run = [&](Tuning tuning) {
    Context context({.device = Device::emulator,
                     .tuning = tuning,
                     .tuning_budget_seconds = 0.01,
                     .cache_dir = directory.path().string()});
    std::vector<std::uint16_t> d(33 * 40);
    context.gemm(problem, {.a = a.data(), .b = b.data(), .d = d.data()});
    CHECK(std::all_of(d.begin(), d.end(), [](std::uint16_t x) { return x == 0x5200; }));  // 48 ones
  };
  const auto in_all_modes = [&] {
    for (const Tuning tuning : {Tuning::cached, Tuning::on}) run(tuning);
    fs::remove_all(file);
  };
  fs::create_directory(file);
  in_all_modes();
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  in_all_modes();
  fs::create_symlink(file, file);
  in_all_modes();
  write_file(file, "");
  std::error_code ignored;
  fs::resize_file(file, std::uintmax_t(1) << 40, ignored);
  in_all_modes();
  write_file(file, std::string(1000, '[') + "\n{\"schema\":1}\n" + std::string(1000, '\0'));
  in_all_modes();
}
