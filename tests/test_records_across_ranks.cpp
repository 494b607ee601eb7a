// Tuning results of products across ranks: beside those of gemm(), never in their place.
#include <nlohmann/json.hpp>
#include <vector>

#include "catch.hpp"
#include "command.hpp"
#include "core/sharded_problem.hpp"
#include "plan/candidates.hpp"
#include "sandbox.hpp"
#include "tune/tuning_result.hpp"
#include "tune/wisdom.hpp"
#include "tuning_files.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr AcrossRanks two{2, Exchange::all_gather_a};

NormalProblem asked() {
  Problem problem{.m = 512, .n = 512, .k = 512, .a = {bf16}, .b = {bf16}, .d = {bf16}};
  problem.b.layout = Layout::column_major;
  return shape_of(normalise(problem));
}

TuningRecord record_across(const AcrossRanks& across = two, ParallelMethod method = ParallelMethod::overlapped) {
  TuningRecord record = record_of(asked());
  record.across = across;
  record.method = method;
  record.config = candidates(problem_of_kernel(record), h200).front();
  return record;
}

std::string why_not(const nlohmann::json& line) {
  std::string why;
  CHECK_FALSE(parse_json_line(line.dump(), &why));
  return why;
}

}  // namespace

TEST_CASE("A record across ranks is read as it was written", "[tuning_db][rank_tuning]") {
  for (const Exchange exchange : {Exchange::all_gather_a, Exchange::reduce_scatter_d, Exchange::all_reduce_d}) {
    for (const ParallelMethod method : {ParallelMethod::unfused, ParallelMethod::overlapped}) {
      if (exchange == Exchange::all_reduce_d && method == ParallelMethod::overlapped) continue;
      const TuningRecord record = record_across({4, exchange}, method);
      std::string why;
      const auto read = parse_json_line(to_json_line(record), &why);
      CAPTURE(to_string(exchange), to_string(method), why);
      REQUIRE(read);
      CHECK(same_key(*read, record));
      CHECK(read->across == record.across);
      CHECK(read->method == method);
      CHECK(read->config == record.config);
      CHECK(to_json_line(*read) == to_json_line(record));
      CHECK(to_result(record).json() == to_json_line(record));
    }
  }
  const nlohmann::json line = nlohmann::json::parse(to_json_line(record_across()));
  CHECK(line["problem"]["exchange"] == "all_gather_a");  // where older versions refuse what they do not know
  CHECK(line["problem"]["ranks"] == 2);
  CHECK(line["method"] == "overlapped");
  const nlohmann::json plain = nlohmann::json::parse(to_json_line(record_of(asked())));
  CHECK_FALSE((plain["problem"].contains("ranks") || plain.contains("method")));
}

TEST_CASE("Problem, exchange and number of ranks are the key, and gemm() has its own", "[tuning_db][rank_tuning]") {
  const TemporaryDirectory directory;
  const auto file = directory.path() / tuning_db_name;
  TuningDb db(file);
  db.add(record_across());
  CHECK(db.find(asked(), h200).match == Match::none);  // no neighbour either
  CHECK(db.find(asked(), {3, Exchange::all_gather_a}, h200, {}).match == Match::none);
  CHECK(db.find(asked(), {2, Exchange::reduce_scatter_d}, h200, {}).match == Match::none);
  CHECK(db.find(asked(), two, h200, {.sms = 100}).match == Match::none);
  CHECK(db.find(shape(512, 512, 256), two, h200, {}).match == Match::none);
  CHECK(db.find(asked(), two, RatedDevice(device_info_for("sm_80")), {}).match == Match::none);

  const TuningRecord plain = record_of(asked());
  const TuningRecord unfused = record_across({2, Exchange::reduce_scatter_d}, ParallelMethod::unfused);
  db.add(plain);
  db.add(unfused);
  TuningDb other(file);
  CHECK(other.records().size() == 3);
  const TuningLookup found = other.find(asked(), two, h200, {});
  CHECK(found.match == Match::exact);
  CHECK(found.method == ParallelMethod::overlapped);
  CHECK(found.config == record_across().config);
  CHECK(found.measured_us == 12.5);
  CHECK(other.find(asked(), unfused.across, h200, {}).method == ParallelMethod::unfused);
  CHECK(other.find(asked(), h200).config == plain.config);
  CHECK(merge_stored({{.library = "", .records = other.records(), .kernels = {}}}).records.size() == 3);
}

TEST_CASE("A broken line of a product across ranks says what is wrong", "[tuning_db][rank_tuning]") {
  const nlohmann::json good = nlohmann::json::parse(to_json_line(record_across()));
  REQUIRE(parse_json_line(good.dump()));
  const auto with = [&](const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json line = good;
    line[nlohmann::json::json_pointer(pointer)] = value;
    return line;
  };
  const auto without = [&](const std::string& parent, const std::string& key) {
    nlohmann::json line = good;
    line[nlohmann::json::json_pointer(parent)].erase(key);
    return line;
  };
  CHECK_THAT(why_not(with("/problem/ranks", 1)), ContainsSubstring("ranks is not a count of several"));
  CHECK_THAT(why_not(with("/problem/ranks", -2)), ContainsSubstring("ranks"));
  CHECK_THAT(why_not(with("/problem/ranks", "2")), ContainsSubstring("ranks is not an integer"));
  CHECK_THAT(why_not(with("/problem/ranks", 3)), ContainsSubstring("m = 512 is not divided by 3 ranks"));
  CHECK_THAT(why_not(with("/problem/exchange", "all_to_all")), ContainsSubstring("unknown value all_to_all"));
  CHECK_THAT(why_not(without("/problem", "exchange")), ContainsSubstring("exchange"));
  CHECK_THAT(why_not(without("/problem", "ranks")), ContainsSubstring("exchange is not known"));
  CHECK_THAT(why_not(without("", "method")), ContainsSubstring("method"));
  CHECK_THAT(why_not(with("/method", "one_shot")), ContainsSubstring("method is chosen without measuring"));
  CHECK_THAT(why_not(with("/method", "magic")), ContainsSubstring("unknown value magic"));
  CHECK_THAT(why_not(with("/problem/exchange", "all_reduce_d")), ContainsSubstring("added up behind the product"));
  CHECK_THAT(why_not(with("/config", "sm80 64x64x64 group_m=8 stages=4 warps=4 schedule=data_parallel")),
             ContainsSubstring("shards of other ranks are for the sm90 main loop"));
}

TEST_CASE("jitgemm wisdom shows what ranks measured as theirs", "[cli][wisdom][rank_tuning]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  std::filesystem::create_directory(jitgemm.path("cache"));
  TuningDb(jitgemm.path("cache") / tuning_db_name).add(record_of(shape(512, 512, 512)));
  TuningDb(jitgemm.path("cache") / tuning_db_name).add(record_across());
  const Output shown = jitgemm("wisdom show");
  CHECK(shown.status == 0);
  CHECK_THAT(shown.out, ContainsSubstring("in all_gather_a of 2 ranks") && ContainsSubstring("overlapped sm90") &&
                            ContainsSubstring("2 records"));
  CHECK(jitgemm("wisdom show --json").json()["list"]["records"].size() == 2);
  CHECK(jitgemm("wisdom cover cache/tuning.jsonl --json").json()["problems"] == 1);
}
