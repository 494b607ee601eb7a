// Constraints as a part of the key: of records, their lines, neighbours and wisdom.
#include "catch.hpp"
#include "errors.hpp"
#include "gemm_cases.hpp"
#include "kernels/launch_shape.hpp"
#include "plan/constraints.hpp"
#include "plan/ranking.hpp"
#include "sandbox.hpp"
#include "splits_k.hpp"
#include "tune/nearest.hpp"
#include "tune/wisdom.hpp"
#include "tuning_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const KernelConfig whole_tiles = parse_kernel_config("sm90 64x64x64 group_m=8 stages=4 warps=4 schedule=data_parallel");
const KernelConfig split = parse_kernel_config("sm90 64x64x64 group_m=8 stages=4 warps=4 schedule=split_k splits=2");

TuningRecord constrained_record(const NormalProblem& problem, const Constraints& constraints,
                                const KernelConfig& config = whole_tiles) {
  TuningRecord record = record_of(problem);
  record.constraints = constraints;
  record.config = config;
  return record;
}

}  // namespace

TEST_CASE("What is tuned under constraints answers for the same ones alone", "[constraints][tuning_db]") {
  const NormalProblem problem = shape(512, 512, 2048), neighbour = shape(512, 512, 1536),
                      wide = shape(1024, 1024, 2048);
  const std::vector<Constraints> all{
      {},          {.batch_invariant = true},           {.workspace_bytes = 0}, {.workspace_bytes = 1 << 20},
      {.sms = 64}, {.batch_invariant = true, .sms = 64}};
  for (const Constraints& tuned : all) {
    TuningDb db(std::nullopt);
    db.add(constrained_record(problem, tuned));
    for (const Constraints& asked : all) {
      CAPTURE(to_string(tuned), to_string(asked));
      CHECK(db.find(problem, h200, asked).match == (tuned == asked ? Match::exact : Match::none));
      CHECK(db.find(neighbour, h200, asked).match == (tuned == asked ? Match::nearest : Match::none));
    }
    // 256 tiles are more blocks than 64 SMs take at once.
    CHECK(db.find(wide, h200, tuned).match == (tuned.sms == 64 ? Match::none : Match::nearest));
  }
  TuningDb db(std::nullopt);
  for (const Constraints& constraints : all) db.add(constrained_record(problem, constraints));
  CHECK(db.records().size() == all.size());
  db.add(constrained_record(problem, all[2]));
  CHECK(db.records().size() == all.size());
}

TEST_CASE("A neighbour's configuration that breaks the constraints here is no answer", "[constraints][tuning_db]") {
  const NormalProblem problem = shape(512, 512, 2048), larger = shape(640, 640, 2048);
  const std::size_t bytes = launch_shape(problem, split).workspace_bytes();
  REQUIRE(bytes > 0);
  TuningDb db(std::nullopt);
  db.add(constrained_record(problem, {.workspace_bytes = bytes}, split));
  CHECK(db.find(problem, h200, {.workspace_bytes = bytes}).match == Match::exact);
  CHECK(db.find(shape(512, 512, 2560), h200, {.workspace_bytes = bytes}).match == Match::nearest);
  CHECK(db.find(larger, h200, {.workspace_bytes = bytes}).match == Match::none);
}

TEST_CASE("A neighbour's slow configuration is passed over for one that keeps to the constraints",
          "[constraints][nearest]") {
  const TemporaryDirectory directory;
  const NormalProblem tuned = shape(128, 256, 8192), neighbour = shape(128, 256, 6144);
  REQUIRE(splits_k(rank(neighbour, h200, 1).at(0).config));
  const KernelConfig slow = parse_kernel_config("sm90 64x256x64 group_m=8 stages=3 warps=4 schedule=persistent grid=1");
  TuningDb(directory.path() / "tuning.jsonl").add(constrained_record(tuned, {.batch_invariant = true}, slow));
  Context context({.device = Device::compile_only,
                   .architecture = "sm_90a",
                   .tuning = Tuning::cached,
                   .constraints = {.batch_invariant = true},
                   .cache_dir = directory.path().string()});
  CHECK(context.plan(tuned).source == PlanSource::exact);
  const Plan plan = context.plan(neighbour);
  CHECK(plan.source == PlanSource::model);
  CHECK_THAT(plan.why, ContainsSubstring("which expects what was tuned to take"));
  CHECK_FALSE(splits_k(plan.config));
}

TEST_CASE("A record's constraints survive its line, and only those that constrain stand there",
          "[constraints][tuning_db]") {
  const NormalProblem problem = shape(512, 512, 2048);
  CHECK_THAT(to_json_line(constrained_record(problem, {})), !ContainsSubstring("constraints"));
  for (const Constraints& constraints :
       {Constraints{}, Constraints{.batch_invariant = true}, Constraints{.workspace_bytes = 0},
        Constraints{.workspace_bytes = SIZE_MAX - 1},
        Constraints{.batch_invariant = true, .workspace_bytes = 12345, .sms = 64}}) {
    const TuningRecord record = constrained_record(problem, constraints);
    std::string why;
    const auto read = parse_json_line(to_json_line(record), &why);
    INFO(why);
    REQUIRE(read);
    CHECK(read->constraints == constraints);
    CHECK(same_key(*read, record));
  }
  const std::string line = to_json_line(constrained_record(problem, {.sms = 64}));
  const auto with = [&](const std::string& what) {
    const std::string old = R"({"sms":64})";
    REQUIRE(line.find(old) != std::string::npos);
    return parse_json_line(std::string(line).replace(line.find(old), old.size(), what));
  };
  CHECK(with(R"({"sms":65})"));
  for (const char* wrong : {R"({"sms":63})", R"({"sms":-1})", R"({"sms":133})", R"({"sms":"64"})",
                            R"({"batch_invariant":1})", R"({"workspace_bytes":-1})", R"({"colour":3})", "64", "[]"}) {
    INFO(wrong);  // 63: 64 blocks do not keep to it
    CHECK_FALSE(with(wrong));
  }
  CHECK_FALSE(parse_json_line(to_json_line(constrained_record(problem, {.batch_invariant = true}, split))));
  CHECK_FALSE(parse_json_line(to_json_line(constrained_record(problem, {.workspace_bytes = 0}, split))));
}

TEST_CASE("Wisdom keeps what is tuned under other constraints apart", "[constraints][wisdom]") {
  const NormalProblem problem = shape(512, 512, 2048);
  StoredWisdom a, b;
  a.records = {constrained_record(problem, {}, split), constrained_record(problem, {.batch_invariant = true})};
  b.records = {constrained_record(problem, {}, split), constrained_record(problem, {.workspace_bytes = 0})};
  CHECK(merge_stored({a, b}).records.size() == 3);
  const StoredDiff diff = diff_stored(a, b);
  CHECK(diff.same == 1);
  CHECK(diff.differ.empty());
  REQUIRE(diff.only_a.size() == 1);
  CHECK(diff.only_a[0].constraints == Constraints{.batch_invariant = true});
  REQUIRE(diff.only_b.size() == 1);
  CHECK(diff.only_b[0].constraints == Constraints{.workspace_bytes = 0});
}
