#include "catch.hpp"
#include "command.hpp"
#include "sandbox.hpp"

using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// The status of the command, with its standard output where `redirection` says.
int status_with(const Command& jitgemm, const std::string& arguments, const std::string& redirection) {
  const std::string line = "JITGEMM_CACHE_DIR='" + jitgemm.path("cache").string() + "' '" + command_path().string() +
                           "' " + arguments + " </dev/null 2>'" + jitgemm.path("errors").string() + "' " + redirection;
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const char* const printing[] = {"run -m 8 -n 8 -k 8 --device emulator --tuning off",
                                "run -m 8 -n 8 -k 8 --device emulator --tuning off --json",
                                "explain -m 8 -n 8 -k 8 --device emulator",
                                "explain -m 8 -n 8 -k 8 --device emulator --json",
                                "source -m 8 -n 8 -k 8 --arch sm_80",
                                "tune -m 8 -n 8 -k 8 --device emulator --tuning-budget 0.01",
                                "warm -m 8 -n 8 -k 8 --device emulator --candidates 0",
                                "devices",
                                "cache ls",
                                "cache verify",
                                "cache clear",
                                "--help",
                                "--version",
                                "run --help",
                                "wisdom export --help"};

}  // namespace

TEST_CASE("Every command whose output is lost fails and says so", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  for (const char* arguments : printing) {
    CAPTURE(arguments);
    CHECK(status_with(jitgemm, arguments, ">'" + jitgemm.path("kept").string() + "'") == 0);
    CHECK_FALSE(file_text(jitgemm.path("kept")).empty());
    for (const char* nowhere : {">/dev/full", ">&-"}) {
      CAPTURE(nowhere);
      CHECK(status_with(jitgemm, arguments, nowhere) == 1);
      CHECK_THAT(file_text(jitgemm.path("errors")), ContainsSubstring("jitgemm: error: cannot write to"));
    }
  }
}

TEST_CASE("What the command prints never goes into a file of the cache", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  CHECK(status_with(jitgemm, printing[0], ">&- 2>&-") == 1);  // the files that it opens get the lowest numbers
  CHECK(jitgemm("cache verify").status == 0);
  const Output again = jitgemm(printing[0]);
  CHECK(again.status == 0);
  CHECK_THAT(again.out, ContainsSubstring("from the disk cache"));
}

TEST_CASE("A misspelt word is answered with the one that was meant", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const std::pair<const char*, const char*> answers[] = {
      {"tunne", "jitgemm has no command \"tunne\": did you mean tune?; `jitgemm --help` lists them"},
      {"rnu -m 8", "jitgemm has no command \"rnu\": did you mean run?"},
      {"cahce ls", "did you mean cache?"},
      {"cache lss", "jitgemm cache has no command \"lss\": did you mean ls?; `jitgemm cache --help` lists them"},
      {"wisdom exprot x", "jitgemm wisdom has no command \"exprot\": did you mean export?"},
      {"explain --layot nn", "jitgemm explain has no option --layot: did you mean --layout?"},
      {"run --aplha=2", "jitgemm run has no option --aplha=2: did you mean --alpha?"},
      {"cache ls --jsno", "jitgemm cache ls has no option --jsno: did you mean --json?"}};
  for (const auto& [words, answer] : answers) {
    const Output output = jitgemm(words);
    CHECK(output.status == 2);
    CHECK_THAT(output.err, ContainsSubstring(answer));
    CHECK(lines_of(output.err).size() == 1);
  }
  for (const char* words : {"frobnicate", "run --frobnicate", "tune-worker2", ""}) {
    const Output output = jitgemm(words);
    CHECK(output.status == 2);
    CHECK_THAT(output.err, !ContainsSubstring("did you mean"));
  }
}

TEST_CASE("A bad number is named by the option that has it", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const std::string shape = "explain -m 8 -n 8 -k 8 --device emulator ";
  const std::pair<std::string, const char*> answers[] = {
      {"explain -m eight -n 8 -k 8", "-m eight is not a number"},
      {shape + "--alpha 1,5", "--alpha 1,5 is not a number"},
      {shape + "--groups x", "--groups x is not a number: give an integer"},
      {shape + "--lda 1e3", "--lda 1e3 is not a number: give an integer"},
      {shape + "--stride-a x", "--stride-a x is not a number"},
      {"explain --problem 'm=8 n=8 k=x'", "k=x is not a number"},
      {shape + "--at-hand-within 0.5", "--at-hand-within: \"0.5\" is not a number of 1 or more"},
      {"soak --device emulator --seconds 0", "--seconds: \"0\" is not a positive number"},
      {"warm --device emulator -m 8 -n 8 -k 8 --kernels 3", "leave sizes and --shapes out"},
      {shape + "--tuning-budget x", "--tuning-budget: \"x\" is not a positive number"},
      {shape + "--tuning-budget 0", "--tuning-budget: \"0\" is not a positive number"},
      {shape + "--tuning-budget inf", "--tuning-budget: \"inf\" is not a positive number"},
      {shape + "--slope nan", "slope = nan is not a number: give one"},
      {shape + "--alpha 1e-400", "--alpha 1e-400 is out of range"},
      {shape + "--emulator-sms x", "--emulator-sms"},
      {shape + "--emulator-seed -1", "--emulator-seed: \"-1\" is not from 0 to 2^64 - 1"},
      {shape + "--emulator-seed 18446744073709551616", "is not from 0 to 2^64 - 1"},
      {shape + "--workspace-limit 99999999999999999999", "is not from 0 to 2^64 - 1"},
      {"soak --seed -1", "--seed: \"-1\" is not from 0 to 2^64 - 1"},
      {"bench --seed -1", "--seed: \"-1\" is not from 0 to 2^64 - 1"},
      {"cache prune --max-bytes x", "--max-bytes x is no size"}};
  for (const auto& [words, answer] : answers) {
    const Output output = jitgemm(words);
    CHECK(output.status != 0);
    CHECK_THAT(output.err, ContainsSubstring(answer));
    CHECK(lines_of(output.err).size() == 1);
  }
}

TEST_CASE("An empty text is no value of any option", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  for (const std::string words :
       {"explain -m 8 -n 8 -k 8 --device emulator --config ''", "explain -m 8 -n 8 -k 8 --device emulator --lda ''",
        "explain --problem ''", "cache ls --cache-dir ''", "cache clear --cache-dir ''", "warm --shapes ''",
        "explain -m 8 -n 8 -k 8 --arch ''"}) {
    const Output output = jitgemm(words);
    INFO(words);
    CHECK(output.status == 2);
    CHECK_THAT(output.err, ContainsSubstring("is empty"));
    CHECK(lines_of(output.err).size() == 1);
  }
}

TEST_CASE("A list of shapes that is none is refused with its place", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("negative.txt"), "8 8 8\n-1 8 8\n");
  write_file(jitgemm.path("large.txt"), "8 8 2147483648\n");
  const std::pair<std::string, const char*> answers[] = {
      {"warm --shapes .", "cannot read the list ., a directory: give a file of `m n k` lines"},
      {"warm --configs .", "cannot read the list ., a directory: give what"},
      {"warm --shapes /dev/zero", "/dev/zero has more than 64 MiB: give a file of `m n k` lines"},
      {"warm --configs /dev/zero", "/dev/zero has more than 64 MiB: give what"},
      {"warm --shapes negative.txt", "negative.txt:2: -1 in \"-1 8 8\" is out of range: give 0 to 2^31 - 1"},
      {"warm --shapes large.txt", "large.txt:1: 2147483648 in"}};
  for (const auto& [words, answer] : answers) {
    const Output output = jitgemm(words + " --device emulator");
    CHECK(output.status == 1);
    CHECK_THAT(output.err, ContainsSubstring(answer));
  }
}

TEST_CASE("A list may begin with a byte order mark", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("marked.txt"),
             "\xef\xbb\xbf"
             "16 16 16\r\n");
  const Output output = jitgemm("warm --shapes marked.txt --device emulator");
  CHECK(output.err.empty());
  CHECK(output.status == 0);
}

TEST_CASE("The emulator that nobody asked for is spoken of only once it runs something", "[cli]") {
  NEEDS_COMMAND();
  if (std::filesystem::exists("/dev/nvidiactl")) SKIP("there is a GPU");
  const Command jitgemm;
  for (const char* words :
       {"run -m -1 -n 8 -k 8", "run --type f17", "run --emulator-sms 0", "explain -m 8 -n 8", "tune -m -1 -n 8 -k 8",
        "warm -m -1 -n 8 -k 8", "warm --shapes nowhere", "source --layout xx -m 8 -n 8 -k 8"}) {
    const Output output = jitgemm(words);
    CHECK(output.status != 0);
    CHECK(lines_of(output.err).size() == 1);
    CHECK_THAT(output.err, !ContainsSubstring("emulator, times"));
  }
  CHECK_THAT(jitgemm("run -m 8 -n 8 -k 8 --tuning off").err, ContainsSubstring("running on the emulator"));
}

TEST_CASE("What an option says goes before an environment that is wrong", "[cli]") {
  const Command jitgemm;
  const ScopedEnvironment tuning("JITGEMM_TUNING", "sometimes");
  CHECK(jitgemm("run -m 8 -n 8 -k 8 --device emulator --tuning off").status == 0);
  CHECK(jitgemm("run --help").status == 0);
  const Output output = jitgemm("run -m 8 -n 8 -k 8 --device emulator");
  CHECK(output.status == 1);
  CHECK_THAT(output.err, ContainsSubstring("JITGEMM_TUNING=sometimes is not known"));
}
