// The processes of ranks: what they say, and that none is left when one fails, dies or is silent. Shells stand in for
// ranks.
#include <signal.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "command.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "parallel/command.hpp"
#include "parallel/processes.hpp"
#include "parallel/rank.hpp"

using namespace jitgemm;
using namespace jitgemm::cli;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

using Json = nlohmann::ordered_json;

/// A rank that says its process id, and then does as the script says. $first is its first line.
ChildCommand shell(const std::string& script) {
  return {.words = {"sh", "-c", "read first; echo \"{\\\"pid\\\": $$}\"; " + script},
          .environment = {"JITGEMM_RANK_TEST=given"},
          .program = "/bin/sh"};
}

struct Run {
  std::string error;
  std::vector<Json> said;
  std::vector<pid_t> pids;
  double seconds = 0;
};

Run run(const std::vector<std::string>& scripts, double most_silent_seconds = 60) {
  Run its;
  std::vector<ChildCommand> commands;
  std::vector<std::string> first_lines;
  for (const std::string& script : scripts) {
    first_lines.push_back("line of " + std::to_string(commands.size()));
    commands.push_back(shell(script));
  }
  const auto begin = std::chrono::steady_clock::now();
  const RankEvents events{.said =
                              [&](int rank, const Json& line) {
                                if (line.contains("pid"))
                                  its.pids.push_back(line["pid"].get<pid_t>());
                                else
                                  its.said.push_back({{"rank", rank}, {"line", line}});
                              },
                          .tick = [] {}};
  const std::optional<Error> error =
      error_if_any([&] { run_ranks(commands, first_lines, most_silent_seconds, events); });
  if (error) its.error = error->what();
  its.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(its.error.find('\n') == std::string::npos);
  for (const pid_t pid : its.pids) {
    INFO(its.error);
    CHECK(kill(pid, 0) != 0);  // none is left
  }
  return its;
}

const std::string waits = "read never; sleep 100";

}  // namespace

TEST_CASE("Ranks are given a line each, and what they say is heard, in their order", "[parallel_bench][processes]") {
  const Run its = run({"echo \"{\\\"first\\\": \\\"$first\\\"}\"; echo '{\"x\": 1}'", "sleep 0.2; echo '{\"x\": 2}'"});
  CHECK(its.error == "");
  CHECK(its.pids.size() == 2);
  REQUIRE(its.said.size() == 3);
  CHECK(its.said[0]["line"]["first"] == "line of 0");
  CHECK(its.said[1]["line"]["x"] == 1);
  CHECK(its.said[2]["rank"] == 1);
  CHECK(its.said[2]["line"]["x"] == 2);
}

TEST_CASE("What a rank has for the others reaches them all", "[parallel_bench][processes]") {
  const std::string tells = "echo '{\"to_others\": \"abc\"}'";
  const std::string listens = "read line; [ \"$line\" = '{\"to_others\": \"abc\"}' ] && echo '{\"heard\": true}'";
  const Run its = run({tells, listens, listens});
  CHECK(its.error == "");
  CHECK(its.said.size() == 2);
}

TEST_CASE("A process has what it is given in its environment, and the rest of this one's",
          "[parallel_bench][processes]") {
  const Run its = run({"[ \"$JITGEMM_RANK_TEST\" = given ] && [ -n \"$PATH\" ] && echo '{\"has\": true}'"});
  CHECK(its.said.size() == 1);
}

TEST_CASE("A rank that says why it fails ends the others, and its reason is the error", "[parallel_bench][processes]") {
  const Run its = run({waits, "echo '{\"error\": \"no memory: use a smaller shape\"}'; exit 1", waits});
  CHECK(its.error == "rank 1: no memory: use a smaller shape");
  CHECK(its.pids.size() == 3);
  CHECK(its.seconds < 50);
}

TEST_CASE("A rank that dies without a word ends the others", "[parallel_bench][processes]") {
  CHECK_THAT(run({waits, waits, "kill -9 $$"}).error,
             ContainsSubstring("the process of rank 2 was ended by signal 9; JITGEMM_LOG=info may say why"));
  CHECK_THAT(run({"exit 3", waits}).error, ContainsSubstring("the process of rank 0 ended with status 3"));
}

TEST_CASE("A rank's death is the error, not what the others say of it", "[parallel_bench][processes]") {
  const Run its = run({"echo '{\"error\": \"rank 1 does not answer\"}'; exit 1", "sleep 0.1; kill -9 $$"});
  CHECK_THAT(its.error, ContainsSubstring("the process of rank 1 was ended by signal 9"));
}

TEST_CASE("What is no JSON, as of a program that prints, ends the run", "[parallel_bench][processes]") {
  CHECK_THAT(run({"echo hello; " + waits, waits}).error, ContainsSubstring("rank 0 said what is no JSON: hello"));
}

TEST_CASE("Ranks that wait for each other for ever are ended", "[parallel_bench][processes]") {
  const Run its = run({waits, waits}, 0.5);
  CHECK_THAT(its.error, ContainsSubstring("no rank has said anything"));
  CHECK(its.pids.size() == 2);
  CHECK(its.seconds < 50);
}

TEST_CASE("What throws on hearing a rank leaves no process", "[parallel_bench][processes]") {
  std::vector<pid_t> pids;
  const RankEvents events{.said =
                              [&](int, const Json& line) {
                                pids.push_back(line["pid"].get<pid_t>());
                                if (pids.size() == 2) throw Error(ErrorCode::io, "the disk is full");
                              },
                          .tick = [] {}};
  const std::string why =
      refusal(ErrorCode::io, [&] { run_ranks({shell(waits), shell(waits)}, {"", ""}, 60, events); });
  CHECK(why == "the disk is full");
  for (const pid_t pid : pids) CHECK(kill(pid, 0) != 0);
}

TEST_CASE("A rank without a GPU says so, and nothing else", "[parallel_bench][processes]") {
  NEEDS_COMMAND();
  if (!cuda_devices().empty()) SKIP("there is a GPU");
  ChildCommand command = rank_command({.tuning = Tuning::off});
  command.program = command_path();
  ParallelTask task;
  task.shapes = llama_shapes();
  const std::string first_line = first_line_of({.rank = 1, .ranks = 2, .gpu = 1}, task);
  const std::string why = refusal(ErrorCode::launch_failed, [&] {
    run_ranks({command}, {first_line}, 60, {[](int, const Json& line) { FAIL(line.dump()); }, [] {}});
  });
  CHECK_THAT(why, ContainsSubstring("rank 0: ") && ContainsSubstring("CUDA driver"));
}

TEST_CASE("A program that cannot be started is an error", "[parallel_bench][processes]") {
  const ChildCommand nowhere{.words = {"x"}, .program = "/nowhere/program"};
  CHECK_THAT(refusal(ErrorCode::io, [&] { run_ranks({nowhere}, {""}, 60, {[](int, const Json&) {}, [] {}}); }),
             ContainsSubstring("cannot start a process"));
}
