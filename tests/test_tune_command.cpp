// `jitgemm tune --shapes`: what it skips, what it costs, several devices, and kills at any moment.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <set>
#include <thread>

#include "../tools/jitgemm/common/time_left.hpp"
#include "catch.hpp"
#include "command.hpp"
#include "core/problem.hpp"
#include "random.hpp"
#include "tune/tuning_db.hpp"

namespace jitgemm::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

/// Small shapes that few kernels serve, so that little is compiled.
const std::string few_kernels = "tune --shapes shapes.txt --type f64 --device emulator --arch sm_80 ";
constexpr int shape_count = 12;

void write_shapes(const Command& jitgemm, int count = shape_count) {
  std::string text;
  for (int i = 1; i <= count; ++i) text += "32 32 " + std::to_string(8 * i) + "\n";
  write_file(jitgemm.path("shapes.txt"), text);
}

fs::path database(const Command& jitgemm) { return jitgemm.path("cache") / "tuning.jsonl"; }

/// The k of all shapes in the database.
std::set<std::int64_t> tuned(const Command& jitgemm) {
  std::set<std::int64_t> all;
  for (const TuningRecord& record : TuningDb(database(jitgemm)).records()) all.insert(record.problem.k);
  return all;
}

int cached_kernels(const Command& jitgemm) {
  int kernels = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(jitgemm.path("cache"), none)) {
    kernels += entry.path().extension() == ".kernel";
  }
  return kernels;
}

/// The processes that this one has started.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    if (!std::isdigit(entry.path().filename().native()[0])) continue;
    const std::string stat = file_text(entry.path() / "stat");
    const std::size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || stat.compare(name_end + 1, 3, " Z ") == 0) continue;
    if (std::atoi(stat.c_str() + name_end + 4) == parent) children.push_back(std::atoi(stat.c_str()));
  }
  return children;
}

std::vector<pid_t> wait_for_children(pid_t parent, std::size_t count) {
  for (int i = 0; i < 2000; ++i) {
    std::vector<pid_t> children = children_of(parent);
    if (children.size() >= count) return children;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("jitgemm tune skips the shapes that are tuned already", "[tune_command]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_shapes(jitgemm, 3);
  const std::string tune = few_kernels + "--tuning-budget 0.02 ";

  const nlohmann::json before = jitgemm(tune + "--dry-run --json").json();
  CHECK(before["shapes"] == 3);
  CHECK(before["tuned"] == 0);
  CHECK(before["to_tune"] == 3);
  CHECK(before["kernels"] >= 5);
  CHECK(before["kernels_cached"] == 0);
  CHECK(before["compile_seconds"] > 0);
  CHECK_THAT(before["measure_seconds"].get<double>(), WithinAbs(3 * 0.02, 1e-9));
  CHECK_FALSE(fs::exists(database(jitgemm)));
  CHECK(cached_kernels(jitgemm) == 0);

  const Output first = jitgemm(tune);
  INFO(first.err);
  REQUIRE(first.status == 0);
  CHECK(first.err.empty());
  CHECK(lines_of(first.out).size() == 3);
  const std::string recorded = file_text(database(jitgemm));

  const Output again = jitgemm(tune);
  CHECK(again.status == 0);
  CHECK(again.out.empty());
  CHECK(lines_of(again.err).size() == 1);
  CHECK_THAT(again.err, ContainsSubstring("3 of 3 shapes tuned already") && ContainsSubstring("--again"));
  CHECK(file_text(database(jitgemm)) == recorded);
  CHECK(jitgemm(tune + "--dry-run --json").json()["to_tune"] == 0);

  // A shape more, and one twice.
  write_file(jitgemm.path("shapes.txt"), file_text(jitgemm.path("shapes.txt")) + "32 32 40\n32 32 8\n");
  const Output more = jitgemm(tune + "--json");
  CHECK_THAT(more.err, ContainsSubstring("3 of 4 shapes tuned already"));
  REQUIRE(more.json().size() == 1);
  CHECK_THAT(std::string(more.json()[0]["plan"]["problem"]), ContainsSubstring("k=40"));

  const Output anew = jitgemm(tune + "--again");
  CHECK(anew.err.empty());
  CHECK(lines_of(anew.out).size() == 4);
  CHECK(file_text(database(jitgemm)).starts_with(recorded));
  CHECK(lines_of(file_text(database(jitgemm))).size() == 8);

  // Records of other candidates, of another version and of another device are no reason to skip.
  const std::string line = lines_of(file_text(database(jitgemm))).back();
  for (const auto& [key, value] : {std::pair("/candidates", "0123456789abcdef"), std::pair("/library", "0.0.1"),
                                   std::pair("/device/name", "a GPU")}) {
    INFO(key);
    nlohmann::json record = nlohmann::json::parse(line);
    record[nlohmann::json::json_pointer(key)] = value;
    fs::remove(database(jitgemm));
    write_file(database(jitgemm), record.dump() + "\n");
    CHECK(jitgemm(tune + "--dry-run --json").json()["tuned"] == 0);
    write_file(database(jitgemm), line + "\n");
    CHECK(jitgemm(tune + "--dry-run --json").json()["tuned"] == 1);
  }
}

TEST_CASE("jitgemm tune on several devices tunes what one tunes", "[tune_command]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_shapes(jitgemm);
  const std::string tune = few_kernels + "--tuning-budget 0.02 ";
  REQUIRE(jitgemm(tune).status == 0);
  const std::set<std::int64_t> by_one = tuned(jitgemm);
  CHECK(by_one.size() == shape_count);

  for (const char* gpus : {"2", "0,2", "3"}) {
    INFO(gpus);
    fs::remove(database(jitgemm));
    const Output output = jitgemm(tune + "--json --gpus " + gpus);
    INFO(output.err);
    REQUIRE(output.status == 0);
    CHECK(output.err.empty());
    CHECK(output.json().size() == shape_count);
    CHECK(tuned(jitgemm) == by_one);
    CHECK(lines_of(file_text(database(jitgemm))).size() == shape_count);  // none twice
  }
  CHECK(jitgemm(tune + "--gpus 2").status == 0);  // nothing to do

  const nlohmann::json cost = jitgemm(tune + "--again --gpus 4 --dry-run --json").json();
  CHECK(cost["devices"] == 4);
  CHECK_THAT(cost["measure_seconds"].get<double>(), WithinAbs(0.02 * shape_count / 4, 1e-9));
}

TEST_CASE("jitgemm tune starts no more workers than there are shapes to tune", "[tune_command]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_shapes(jitgemm, 2);
  const std::string tune = few_kernels + "--tuning-budget 0.02 --again --dry-run --json --gpus ";
  CHECK(jitgemm(tune + "8").json()["devices"] == 2);
  CHECK(jitgemm(tune + "all").json()["devices"] == 1);  // one emulator
}

TEST_CASE("The shapes of a worker that dies go to the others", "[tune_command]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_shapes(jitgemm, 6);
  // The first kernels take a while to compile.
  const std::string tune = few_kernels + "--tuning-budget 0.02 --gpus 2 --shape-limit 20 ";

  const pid_t run = jitgemm.start(tune);
  const std::vector<pid_t> workers = wait_for_children(run, 2);
  REQUIRE(workers.size() == 2);
  SECTION("one of two") {
    kill(workers[0], SIGKILL);
    const Output output = jitgemm.output(wait_for(run));
    INFO(output.err);
    CHECK(output.status == 0);
    CHECK(lines_of(output.err).size() == 1);
    CHECK_THAT(output.err, ContainsSubstring("the worker of emulated device") && ContainsSubstring("signal 9"));
    CHECK(tuned(jitgemm).size() == 6);
  }
  SECTION("one of two that hangs") {
    kill(workers[0], SIGSTOP);
    const Output output = jitgemm.output(wait_for(run));
    INFO(output.err);
    CHECK(output.status == 0);
    CHECK(lines_of(output.err).size() == 1);
    CHECK_THAT(output.err, ContainsSubstring("the worker of emulated device") &&
                               ContainsSubstring("was ended: it took longer than 20 s while it tuned m=32"));
    CHECK(tuned(jitgemm).size() == 6);
  }
  SECTION("all of them") {
    for (const pid_t worker : workers) kill(worker, SIGKILL);
    const Output output = jitgemm.output(wait_for(run));
    INFO(output.err);
    CHECK(output.status == 1);
    CHECK_THAT(output.err, ContainsSubstring("of 6 untuned: the same command goes on"));
    REQUIRE(jitgemm(tune).status == 0);
    CHECK(tuned(jitgemm).size() == 6);
  }
  SECTION("the one that started them: they end at once, not when they are done with a shape") {
    std::this_thread::sleep_for(std::chrono::milliseconds(GENERATE(0, 20, 40)));
    kill(run, SIGKILL);
    CHECK(wait_for(run) == -SIGKILL);
    for (const pid_t worker : workers) {
      for (int i = 0; i < 2000 && !has_ended(worker); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      CHECK(has_ended(worker));
    }
    CHECK(tuned(jitgemm).empty());
  }
}

TEST_CASE("What jitgemm tune cannot do it says in one line", "[tune_command]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_shapes(jitgemm, 2);
  for (const char* arguments :
       {"--gpus some", "--gpus ''", "--gpus -1", "--gpus 0", "--gpus 1.5", "--gpus 0,", "--gpus 0,0", "--gpus 0,x",
        "--gpus 99999999999", "--gpus 65", "--shape-limit 0", "--shape-limit soon", "--tuning off", "--gpus 0,64",
        "--type e4m3 --layout nt", "-m 8", "--shapes nowhere.txt"}) {
    INFO(arguments);
    const Output output = jitgemm("tune --shapes shapes.txt --device emulator --arch sm_80 " + std::string(arguments));
    CHECK(output.status > 0);
    CHECK(output.out.empty());
    CHECK(lines_of(output.err).size() == 1);
    CHECK_THAT(output.err, ContainsSubstring("jitgemm: error: "));
  }
  for (const char* option : {"--gpus 2", "--again", "--dry-run", "--shape-limit 9"}) {
    INFO(option);
    const Output output = jitgemm("tune -m 8 -n 8 -k 8 --device emulator " + std::string(option));
    CHECK(output.status > 0);
    CHECK_THAT(output.err, ContainsSubstring("--shapes"));
  }
  CHECK_FALSE(fs::exists(database(jitgemm)));
  CHECK(cached_kernels(jitgemm) == 0);
}

TEST_CASE("A tuning run killed at 50 random moments goes on, and neither loses nor repeats what is recorded",
          "[tune_command]") {
  NEEDS_COMMAND();
  constexpr int kills = 50;
  const Command jitgemm;
  write_shapes(jitgemm);
  const std::string tune = few_kernels + "--tuning-budget 0.02 --gpus ";
  const fs::path file = database(jitgemm);
  REQUIRE(jitgemm(tune + "1").status == 0);  // also fills the kernel cache
  Random random(test_seed());
  CAPTURE(test_seed());

  int killed = 0, in_the_middle = 0;
  while (killed < kills) {
    const int workers = killed < kills / 2 ? 1 : 2;
    const std::string run = tune + std::to_string(workers);
    const double longest = 0.7 * seconds_of([&] { REQUIRE(jitgemm(run + " --again").status == 0); });
    fs::remove(file);
    std::string recorded;  // of this round of runs, until one gets to its end
    int killed_here = 0;
    while (true) {
      const auto tuned_before = tuned(jitgemm).size();
      const pid_t process = jitgemm.start(run);
      std::this_thread::sleep_for(std::chrono::duration<double>(longest * random.uniform()));
      kill(process, SIGKILL);
      const Output output = jitgemm.output(wait_for(process));
      if (workers == 1 && tuned_before > 0 && !output.err.empty()) {
        CHECK_THAT(output.err, ContainsSubstring(std::to_string(tuned_before) + " of 12 shapes tuned already"));
      }
      const std::string now = file_text(file);
      REQUIRE(now.starts_with(recorded));
      recorded = now;
      if (output.status == 0) break;
      REQUIRE(output.status == -SIGKILL);
      ++killed_here;
      in_the_middle += tuned(jitgemm).size() > tuned_before;
    }
    killed += killed_here;
    CHECK(tuned(jitgemm).size() == shape_count);
    const std::vector<std::string> lines = lines_of(file_text(file));
    int cut_short = 0;  // a write that crosses a page may end there when its process is killed
    for (const std::string& line : lines) {
      INFO(line);
      if (parse_json_line(line)) continue;
      CHECK(line.starts_with("{"));
      ++cut_short;
    }
    CHECK(cut_short <= killed_here);
    // A worker that dies after its parent may record what it was at while the next run is at it, too.
    const int whole = int(lines.size()) - cut_short;
    if (workers == 1) CHECK(whole == shape_count);
    CHECK(whole <= shape_count + workers * killed_here);
  }
  CHECK(in_the_middle > 0);
}

TEST_CASE("The time left follows the pace of the later half of the work", "[tune_command]") {
  cli::TimeLeft left;
  CHECK_FALSE(left.at(3));
  left.add(10, 0.1);
  CHECK_THAT(*left.at(10), WithinAbs(90, 1e-9));
  CHECK_THAT(*left.at(14), WithinAbs(86, 1e-9));  // it counts down between two pieces of work
  SECTION("which became quicker") {
    for (int i = 1; i <= 8; ++i) left.add(10 + i, 0.1 + 0.05 * i);
    for (int i = 1; i <= 6; ++i) left.add(18 + i, 0.5 + 0.05 * i);
    CHECK_THAT(*left.at(24), WithinAbs(4, 0.1));
  }
  SECTION("which became slower") {
    left.add(60, 0.2);
    CHECK_THAT(*left.at(60), WithinAbs(400, 1e-9));
  }
  SECTION("and grows when that is not kept up with") {
    CHECK(*left.at(300) > 1000);
    left.add(300, 1);
    CHECK(*left.at(300) == 0);
  }
}

}  // namespace jitgemm::test
