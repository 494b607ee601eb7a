// Every driver and NVRTC call in turn fails, wherever a Context makes it: what the user sees then is the table of
// tools/results/faults.md, in C++ and by way of C.
#include <cstddef>
#include <regex>

#include "catch.hpp"
#include "fault_results.hpp"
#include "fault_scenario.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string without_version(const std::string& function) { return function.substr(0, function.find("_v")); }

struct Counted {
  std::map<Faults::Key, int> calls;
  Books books;
};

/// What each step calls and keeps when nothing fails.
template <typename AnyContext>
std::vector<Counted> without_faults() {
  Scenario<AnyContext> scenario;
  std::vector<Counted> counted;
  for (const Step<AnyContext>& step : steps<AnyContext>) {
    Faults::counts.clear();
    std::optional<ErrorCode> failed;
    try {
      (scenario.*step.run)();
    } catch (const Error& error) {
      UNSCOPED_INFO(error.what());
      failed = error.code();
    }
    INFO(step.name);
    CHECK(failed == step.fails);
    CHECK(scenario.said() == std::vector<std::string>{});
    counted.push_back({Faults::counts, {}});
  }
  CHECK(counted.back().books.count() == 0);
  return counted;
}

int count(const std::vector<std::string>& lines, const std::string& word) {
  return int(std::count_if(lines.begin(), lines.end(),
                           [&](const std::string& line) { return line.find(word) != std::string::npos; }));
}

/// Runs the scenario up to a step in which a call fails, checks what that leaves behind, and says what the user sees.
template <typename AnyContext>
std::string with_fault(std::size_t place, const Faults::Fault& fault, const std::vector<Counted>& expected) {
  const auto& steps = test::steps<AnyContext>;
  const Step<AnyContext>& step = steps[place];
  Scenario<AnyContext> scenario;
  for (std::size_t i = 0; i < place; ++i) {
    try {
      (scenario.*steps[i].run)();
    } catch (const Error&) {
      if (!steps[i].fails) throw;
    }
  }
  scenario.said();

  std::string seen;
  std::size_t lost = 0;  // what the log says could not be freed
  std::vector<std::size_t> after_failures;
  std::size_t successes = 0;
  constexpr int rounds = 8;
  for (int round = 0; round < rounds; ++round) {
    Faults::arm(fault);
    std::optional<Error> error;
    try {
      (scenario.*step.run)();
    } catch (const Error& thrown) {
      error = thrown;
    }
    Faults::fault.reset();
    successes += !error;
    const std::vector<std::string> said = scenario.said();
    if (!Faults::fired) {
      CHECK(round > 0);
      break;
    }

    lost += std::size_t(count(said, "stays until"));
    if (count(said, "current context may be another")) {
      FakeGpu::stack.clear();
      FakeGpu::current = scenario.own_context();
    }
    if (count(said, "capture mode stays relaxed")) FakeGpu::capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CHECK(FakeGpu::current == scenario.own_context());
    CHECK(FakeGpu::stack.empty());
    CHECK(FakeGpu::capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);

    if (round == 0) {
      if (error) {
        seen = "`" + to_string(error->code()) + "`: " + scenario.without_names(error->what());
        CHECK_FALSE(error->call().empty());
        CHECK(seen.find('\n') == std::string::npos);
        if (!step.fails) {
          // A matrix that the driver refuses to describe is a bug of the library's.
          CHECK((error->code() == ErrorCode::internal) == (fault.function == "cuTensorMapEncodeTiled"));
          if (fault.function != "nvrtcCompileProgram")
            CHECK_THAT(error->what(), ContainsSubstring(without_version(fault.function)));
          CHECK_THAT(error->call(), ContainsSubstring(without_version(fault.function)));
          CHECK(said.empty());
        }
      } else {
        seen = "carries on";
        CAPTURE(said);
        CHECK(said.size() <= 1);
        for (const std::string& line : said) seen += "; log: " + line;
      }
    }
    if (!error || step.fails) {
      // Gone: the driver has freed what was not.
      lost += step.run == &Scenario<AnyContext>::end && fault.function == "cuCtxGetCurrent" &&
              fault.result == CUDA_ERROR_DEINITIALIZED;
      break;
    }
    after_failures.push_back(Books().count());
  }
  // Failing again and again keeps no more each time, once the parts that work are done.
  if (after_failures.size() == rounds) CHECK(after_failures[rounds - 1] == after_failures[rounds - 2]);

  if (!step.fails && step.run != &Scenario<AnyContext>::end) {
    CHECK_NOTHROW((scenario.*step.run)());
    CHECK(scenario.said() == std::vector<std::string>{});
    ++successes;
  }
  const std::size_t kept = Books().count();
  const std::size_t at_most =
      expected[place].books.count() + lost + (step.fails ? 0 : (successes - 1) * step.keeps_each_time);
  CHECK(kept <= at_most);
  if (!step.tunes) CHECK(kept == at_most);
  scenario.end();
  CHECK(Books().count() == lost);
  return seen;
}

/// Which of n calls are made to fail.
std::vector<int> occurrences(int n, bool tunes) {
  std::vector<int> some;
  // Who wins is not always the same, what it needs, and which thread loads it: of a tuning step's calls the later ones
  // may be anyone's.
  const int first = tunes ? 4 : 6;
  for (int i = 1; i <= std::min(n, first); ++i) some.push_back(i);
  if (n > first && !tunes) some.push_back(n);
  return some;
}

struct Row {
  std::string call, result, seen;
  std::vector<std::string> where;
};

template <typename AnyContext>
class FaultTable {
 public:
  explicit FaultTable(const std::vector<Counted>& counted) : counted_(counted) {}

  template <typename Functions>
  void fail_each() {
    for_each_function<Functions>([this](auto function) {
      if (function.can_fail) fail(function.text);
    });
  }
  void add(const std::string& call, const std::string& result, const std::string& seen, const std::string& where) {
    for (Row& row : rows_) {
      if (row.call != call || row.result != result || row.seen != seen) continue;
      if (std::find(row.where.begin(), row.where.end(), where) == row.where.end()) row.where.push_back(where);
      return;
    }
    rows_.push_back({call, result, seen, {where}});
  }
  std::string text() const {
    std::string text;
    for (const Row& row : rows_) {
      std::string where;
      for (const std::string& one : row.where) where += (where.empty() ? "" : "; ") + one;
      text += "| " + row.call + " | " + row.result + " | " + where + " | " + row.seen + " |\n";
    }
    return text;
  }

 private:
  void fail(const std::string& function) {
    bool called = false;
    const auto& steps = test::steps<AnyContext>;
    for (std::size_t place = 0; place < steps.size(); ++place) {
      for (const bool helper_thread : {false, true}) {
        const auto found = counted_[place].calls.find({function, helper_thread});
        if (found == counted_[place].calls.end()) continue;
        called = true;
        const std::vector<int> results = failures_of(function);
        for (const int occurrence : helper_thread ? std::vector{1} : occurrences(found->second, steps[place].tunes)) {
          for (const int result : results) {
            if (occurrence > 1 && result != results[0]) continue;
            const std::string where = std::string(steps[place].name) + (helper_thread ? ", on a compiling thread" : "");
            INFO(function << " = " << name_of(function, result) << ", call " << occurrence << " in " << where);
            add(function, name_of(function, result),
                with_fault<AnyContext>(place, {function, helper_thread, occurrence, result}, counted_), where);
          }
        }
      }
    }
    INFO(function);
    CHECK(called != is_of_ranks(function));
  }

  const std::vector<Counted>& counted_;
  std::vector<Row> rows_;
};

template <typename Functions, typename Table, typename Load>
void miss_each(Table& table, const char* where, ErrorCode code, Load load) {
  for_each_function<Functions>([&](auto function) {
    if (is_optional(function.text)) return;
    try {
      load(function.text);
      FAIL(function.text << " is not missed");
    } catch (const Error& error) {
      CHECK(error.code() == code);
      CHECK_THAT(error.what(), ContainsSubstring(function.text));
      std::string text = error.what();
      text = std::regex_replace(text, std::regex(function.text + std::string("(_v2)?")), "(it)");
      table.add("each", "not there", "`" + to_string(error.code()) + "`: " + text, where);
    }
  });
}

constexpr const char* head =
    R"(# What a user sees when a CUDA call fails

Written by the test "Whichever driver or NVRTC call fails, there is one Error or one line in the log, and nothing is lost",
which makes each call of the driver and of NVRTC fail in turn, wherever a Context makes it, over a driver and an NVRTC that
keep books. It also checks that nothing leaks, that the thread's current CUDA context and capture mode are as before, and
that the next call works. The test fails when this file does not match; to write it anew:

    JITGEMM_TEST_FAULTS=tools/results/faults.md tests "Whichever driver or NVRTC call fails*"

"carries on" means that the call returns as usual. Log lines marked `info` show only at JITGEMM_LOG=info. (it), (n), (file)
stand for what depends on the problem.

| call | answers | while in | what the user sees |
| --- | --- | --- | --- |
)";

}  // namespace

TEMPLATE_TEST_CASE(
    "Whichever driver or NVRTC call fails, there is one Error or one line in the log, and nothing is lost", "[faults]",
    Context, CContext) {
  const std::vector<Counted> counted = without_faults<TestType>();
  FaultTable<TestType> table(counted);
  table.template fail_each<DriverFunctions>();
  table.template fail_each<NvrtcFunctions>();
  {
    Scenario<TestType> scenario;
    miss_each<DriverFunctions>(table, "loading the driver", ErrorCode::no_device,
                               [](const char* name) { cuda::bind_driver(symbols<DriverFunctions>(name)); });
    miss_each<NvrtcFunctions>(table, "loading NVRTC", ErrorCode::no_compiler,
                              [](const char* name) { cuda::bind_nvrtc(symbols<NvrtcFunctions>(name), "libnvrtc.so"); });
  }
  const std::string text = head + table.text();
  if (const char* path = std::getenv("JITGEMM_TEST_FAULTS")) write_file(path, text);
  INFO("tools/results/faults.md does not match; write it anew as it says, and read the difference");
  std::istringstream now(text), before(file_text(JITGEMM_SOURCE_DIR "/tools/results/faults.md"));
  while (now && before) {
    std::string line, recorded;
    std::getline(now, line);
    std::getline(before, recorded);
    REQUIRE(line == recorded);
  }
  CHECK(now.eof() == before.eof());
}
