// The tuning database under fire: killed writers, full disks, odd files, damaged and foreign lines.
#include <sys/file.h>
#include <sys/resource.h>

#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "catch.hpp"
#include "sandbox.hpp"
#include "tuning_samples.hpp"
#include "util/line_file.hpp"
#include "util/publish_step.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

void append(const fs::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::app | std::ios::binary);
  if (!(stream << text << std::flush)) throw std::runtime_error("append to " + file.string());
}

std::string line_of(const TuningRecord& record) { return to_json_line(record) + "\n"; }

bool holds(TuningDb& db, const Problem& problem) {
  for (const TuningRecord& record : db.records()) {
    if (equal(record.problem, problem)) return true;
  }
  return false;
}
bool holds(const fs::path& file, const Problem& problem) {
  TuningDb db(file);
  return holds(db, problem);
}

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

const Problem first = shape(512, 512, 512), second = shape(600, 600, 600), third = shape(700, 700, 700);

/// The line of `first` with something else in the place of one of its members.
std::string line_with(const std::string& pointer, const nlohmann::json& value) {
  nlohmann::json object = nlohmann::json::parse(to_json_line(record_of(first)));
  object[nlohmann::json::json_pointer(pointer)] = value;
  return object.dump() + "\n";
}
std::string line_without(const std::string& parent, const std::string& key) {
  nlohmann::json object = nlohmann::json::parse(to_json_line(record_of(first)));
  object[nlohmann::json::json_pointer(parent)].erase(key);
  return object.dump() + "\n";
}
/// Also what JSON cannot say.
std::string line_with_text(const std::string& from, const std::string& to) {
  std::string line = line_of(record_of(first));
  const std::size_t at = line.find(from);
  if (at == std::string::npos) throw std::logic_error("no " + from + " in " + line);
  return line.replace(at, from.size(), to);
}

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

TEST_CASE("A record torn at any byte is not read and harms no other", "[tuning_db]") {
  const TemporaryDirectory directory;
  const std::string torn = line_of(record_of(second));
  for (std::size_t length = 0; length < torn.size(); length += length + 20 < torn.size() ? 17 : 1) {
    INFO(length);
    const fs::path file = directory.path() / (std::to_string(length) + ".jsonl");
    const CapturedLog log;
    append(file, line_of(record_of(first)) + torn.substr(0, length));
    TuningDb reader(file), writer(file);
    const bool whole = length + 1 == torn.size();  // all but its newline
    CHECK(holds(reader, second) == whole);
    CHECK(log.text().empty());
    writer.add(record_of(third));
    for (TuningDb* db : {&reader, &writer}) {
      CHECK(holds(*db, first));
      CHECK(holds(*db, second) == whole);
      CHECK(holds(*db, third));
    }
    CHECK(TuningDb(file).records().size() == (whole ? 3 : 2));
    CHECK(log.count("skipped line 2") == (whole || length == 0 ? 0 : 1));
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
  bool readable = false;
  SECTION("a folder") { fs::create_directories(file / "content"); }
  SECTION("a FIFO, which is not waited for") { REQUIRE(mkfifo(file.c_str(), 0600) == 0); }
  SECTION("a device") { fs::create_symlink("/dev/null", file); }
  SECTION("a link to itself") { fs::create_symlink("tuning.jsonl", file); }
  SECTION("a link into a folder that is not there") {
    fs::create_symlink("nowhere/tuning.jsonl", file);
    readable = true;  // as a file that is not there yet
  }
  const CapturedLog log;
  TuningDb db(file);
  CHECK(db.find(first, h200).match == Match::none);
  for (int i = 0; i < 3; ++i) db.add(record_of(shape(512, 512, 512 + i)));
  CHECK(db.find(first, h200).match == Match::exact);
  CHECK(db.records().size() == 3);
  CHECK(log.count("cannot be read") == (readable ? 0 : 1));
  CHECK(log.count("cannot be written") == 1);
  CHECK(log.count("warning") == (readable ? 1 : 2));
  if (fs::is_directory(fs::symlink_status(file))) CHECK(fs::exists(file / "content"));

  // Once there is a file, it gets everything.
  fs::remove_all(file);
  append(file, line_of(record_of(second)));
  CHECK(db.records().size() == 4);
  db.add(record_of(third));
  CHECK(TuningDb(file).records().size() == 5);
  CHECK(db.records().size() == 5);
}

TEST_CASE("A link to a file that is not there yet makes that file", "[tuning_db]") {
  const TemporaryDirectory directory;
  fs::create_symlink("elsewhere", directory.path() / "tuning.jsonl");
  const CapturedLog log;
  TuningDb(directory.path() / "tuning.jsonl").add(record_of(first));
  CHECK(holds(directory.path() / "elsewhere", first));
  CHECK(log.text().empty());
}

TEST_CASE("Without file descriptors left, the tuning database keeps what it knows", "[tuning_db]") {
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

TEST_CASE("Huge lines and files neither throw nor hide the records around them", "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl";
  const CapturedLog log;
  append(file, line_of(record_of(first)));
  SECTION("a line of 100 MB") {
    append(file, std::string(100'000'000, '[') + "\n" + line_of(record_of(second)));
    TuningDb db(file);
    CHECK(db.records().size() == 2);
    CHECK(log.count("skipped line 2 (it is longer than 64 KiB)") == 1);
    db.add(record_of(third));
    CHECK(db.records().size() == 3);
  }
  SECTION("100 MB cut short") {
    append(file, std::string(100'000'000, 'x'));
    TuningDb db(file);
    CHECK(db.records().size() == 1);
    db.add(record_of(second));
    CHECK(db.records().size() == 2);
    append(file, line_of(record_of(third)));
    CHECK(db.records().size() == 3);
    CHECK(log.count("skipped line 2") == 1);
  }
  SECTION("lines about as long as what is read at once") {
    int records = 1;
    for (const std::size_t length : {(64u << 10) - 1, 64u << 10, (64u << 10) + 1, (1u << 20) - 1, 1u << 20, 3u << 20}) {
      append(file, std::string(length, 'x') + "\n" + line_of(record_of(shape(512, 512, 1000 + ++records))));
    }
    for (int i = 0; i < 3000; ++i) append(file, line_of(record_of(shape(64, 1 + i, 64))));
    CHECK(TuningDb(file).records().size() == std::size_t(records + 3000));
    CHECK(log.count("skipped line 2") == 1);
  }
  SECTION("a terabyte of nothing") {
    std::error_code error;
    fs::resize_file(file, std::uintmax_t(1) << 40, error);
    if (error) WARN("no sparse file of this size here: " << error.message());
    TuningDb db(file);
    CHECK(db.records().empty());
    db.add(record_of(second));
    CHECK(holds(db, second));
    CHECK(holds(file, second));
    CHECK(log.count("warning") == 1);
    CHECK(log.count("before the last 256 MiB") == 1);
  }
}

TEST_CASE("Line ends of other systems, NUL bytes and empty lines are no records and harm none", "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl";
  const std::string one = to_json_line(record_of(first)), two = to_json_line(record_of(second));
  const CapturedLog log;
  SECTION("CR LF, and no newline at the end") { append(file, "\xef\xbb\xbf" + one + "\r\n\r\n\n \r\n" + two); }
  SECTION("NUL bytes before, between and after") {
    append(file, std::string(4096, '\0') + "\n" + one + "\n" + std::string(1000, '\0'));
    TuningDb(file).add(record_of(second));
    CHECK(log.count("skipped line 1 ") == 1);
  }
  SECTION("a NUL byte within") { append(file, one + "\n" + two.substr(0, 50) + '\0' + two.substr(50) + "\n" + two); }
  TuningDb db(file);
  CHECK(db.records().size() == 2);
  CHECK(holds(db, first));
  CHECK(holds(db, second));
  db.add(record_of(third));
  CHECK(db.records().size() == 3);
  CHECK(TuningDb(file).records().size() == 3);
}

TEST_CASE("A tuning database that an editor leaves without a last newline loses nothing", "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl";
  const CapturedLog log;
  append(file, to_json_line(record_of(first)));
  TuningDb db(file);
  CHECK(holds(db, first));
  db.add(record_of(first, 32));  // the later wins, also where the earlier is read twice
  CHECK(db.find(first, h200).config.block_m == 32);
  CHECK(db.records().size() == 1);
  CHECK(log.text().empty());
}

TEST_CASE("A record with impossible values is refused, says why, and hides no good one", "[tuning_db]") {
  const std::string big = "123456789012345678901234567890";
  const std::vector<std::string> lines{
      line_with("/median_us", -1),
      line_with("/median_us", 0),
      line_with("/median_us", nullptr),
      line_with("/median_us", true),
      line_with("/median_us", "12.5"),
      line_with_text("\"median_us\":12.5", "\"median_us\":NaN"),
      line_with_text("\"median_us\":12.5", "\"median_us\":Infinity"),
      line_with_text("\"median_us\":12.5", "\"median_us\":1e999"),
      line_with("/spread", -0.1),
      line_with_text("\"spread\":0.02", "\"spread\":nan"),
      line_with("/schema", 1.5),
      line_with("/schema", "1"),
      line_with("/library", 1),
      line_with("/date", 20261121),
      line_with("/config", 5),
      line_with("/config", ""),
      line_with("/config", "sm80 128x128x32 group_m=99999999999999999999"),
      line_with("/config", "sm80 128x128x32 colour=red"),
      line_with("/config", "sm80 0x0x0"),
      line_with("/config", "sm80 48x128x32 group_m=8 stages=3 warps=4 schedule=data_parallel"),
      line_with("/config", "sm80 128x128x32 group_m=8 stages=3 warps=0 schedule=data_parallel"),
      line_with("/config", "sm80 128x128x32 group_m=8 stages=3 warps=4 schedule=split_k splits=1000"),
      line_with("/config", "sm80 128x128x32 group_m=8 stages=3 warps=4 schedule=stream_k grid=-5"),
      line_with("/device", nlohmann::json::array()),
      line_with("/device/sm_count", 0),
      line_with("/device/sm_count", -132),
      line_with("/device/sm_count", 132.0),
      line_with("/device/sm_count", 4294967296 + 132),  // 132 in 32 bits
      line_with_text("\"sm_count\":132", "\"sm_count\":" + big),
      line_with("/device/compute_capability", 0),
      line_with("/device/compute_capability", true),
      line_with("/device/emulated", 0),
      line_with("/device/name", nullptr),
      line_with("/problem", nullptr),
      line_with("/problem/m", -1),
      line_with("/problem/m", std::int64_t(1) << 31),
      line_with("/problem/m", ~std::uint64_t(0)),
      line_with("/problem/m", 512.5),
      line_with("/problem/k", "512"),
      line_with_text("\"k\":512", "\"k\":" + big),
      line_with("/problem/a", "f11"),
      line_with("/problem/a", 1),
      line_with("/problem/layout_b", "diagonal"),
      line_with("/problem/activation", "none "),
      line_with("/problem/accumulation", "slow"),
      line_with("/problem/accumulation", 1),
      line_with("/problem/alpha", nullptr),
      line_with_text("\"beta\":0.0", "\"beta\":-inf"),
      line_with("/problem/ld/0", 511),
      line_with("/problem/ld/3", std::int64_t(1) << 62),
      line_with("/problem/ld", {512, 512, 512}),
      line_with("/problem/ld", {512, 512, 512, 512, 512}),
      line_with("/problem/align", 16),
      line_with("/problem/align/1", 3),
      line_with("/problem/align/1", 4294967296 + 16),
      line_with("/problem/colour", "red"),  // whose meaning this version would miss
      line_without("/problem", "n"),
      line_without("/device", "emulated"),
      line_without("", "config"),
  };
  const TemporaryDirectory directory;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    INFO(lines[i]);
    std::string why;
    CHECK_FALSE(parse_json_line(lines[i], &why));
    CHECK_FALSE(why.empty());
    const fs::path file = directory.path() / (std::to_string(i) + ".jsonl");
    write_file(file, line_of(record_of(first, 32)) + lines[i] + line_of(record_of(second)));
    const CapturedLog log;
    TuningDb db(file);
    CHECK(db.find(first, h200).config.block_m == 32);
    CHECK(db.records().size() == 2);
    CHECK(log.count("skipped line 2") == 1);
    CHECK(log.count("warning") == 1);
  }
}

TEST_CASE("Two versions of the library share a tuning database in peace", "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl";
  const CapturedLog log;
  const auto from_another = [](const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json object = nlohmann::json::parse(line_with(pointer, value));
    object["library"] = "99.0.0";
    return object.dump() + "\n";
  };
  append(file, line_of(record_of(first, 32)));
  SECTION("what it cannot read is the other's business") {
    append(file, line_with("/schema", 100));
    append(file, "{\"schema\":99,\"x\":[1,2]}\n");
    append(file, from_another("/schema", 101));
    append(file, from_another("/problem/colour", "red"));
    append(file, from_another("/problem/a", "f6"));
    append(file, from_another("/problem/m", "many"));
    append(file, from_another("/config", "sm120 128x128x64 group_m=8 stages=3 warps=4 schedule=data_parallel"));
    append(file, from_another("/config", "sm80 24x24x24 group_m=8 stages=3 warps=4 schedule=data_parallel"));
    TuningDb db(file);
    CHECK(db.find(first, h200).config.block_m == 32);
    CHECK(db.records().size() == 1);
  }
  SECTION("what it can it reads, whatever else the line says") {
    append(file, from_another("/colour", "red"));
    append(file, from_another("/device/colour", "red"));
    append(file, from_another("/config", "sm80 128x128x32 group_m=8 stages=3 warps=4 schedule=data_parallel"));
    TuningDb db(file);
    CHECK(db.find(first, h200).config.block_m == 128);
    CHECK(db.records().size() == 1);
  }
  CHECK(log.text().empty());
}

TEST_CASE("A tuning database rewritten under a reader is read again, from its first line", "[tuning_db]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "tuning.jsonl";
  const CapturedLog log;
  append(file, line_of(record_of(first)) + line_of(record_of(second)));
  TuningDb db(file);
  REQUIRE(db.records().size() == 2);
  std::string text;
  SECTION("in place and shorter") { text = line_of(record_of(third)); }
  SECTION("in place and longer") {
    for (int i = 0; i < 10; ++i) text += line_of(record_of(shape(1000 + i, 64, 64)));
  }
  SECTION("in place and as long as before, with one more") {
    text = line_of(record_of(third)) + line_of(record_of(shape(800, 800, 800))) + line_of(record_of(first));
  }
  SECTION("by a new file") {
    text = line_of(record_of(third)) + line_of(record_of(first));
    fs::remove(file);
  }
  write_file(file, text);
  CHECK(db.records().size() == std::size_t(std::count(text.begin(), text.end(), '\n')));
  CHECK_FALSE(holds(db, second));
  db.add(record_of(second));
  CHECK(holds(db, second));
  CHECK(log.text().empty());
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
