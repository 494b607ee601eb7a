// How groups are measured: by a typical problem, whose rows come to them as a router's might.
#include <algorithm>
#include <filesystem>
#include <string>

#include "catch.hpp"
#include "command.hpp"
#include "context_fixtures.hpp"
#include "core/groups.hpp"
#include "core/problem.hpp"
#include "jitgemm/context.hpp"
#include "tune/group_rows.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

Problem experts(std::int64_t m, std::int64_t groups, std::int64_t expected, Grouping grouping = Grouping::offsets) {
  Problem p{.m = m, .n = 4096, .k = 7168};
  p.a.type = p.b.type = p.d.type = DataType::bf16;
  p.b.layout = Layout::column_major;
  p.batch = groups, p.grouping = grouping, p.expected_m = expected;
  return p;
}

}  // namespace

TEST_CASE("What is measured for groups is few of them, of as many rows as are expected", "[groups][tuning]") {
  const auto typical = [](const Problem& p) { return typical_problem(normalise(p)); };
  // A row each for 8 of 256: 8 groups. For all of them: no more than 3 GiB of B.
  CHECK(typical(experts(8, 256, 1)).batch == 8);
  const NormalProblem all = typical(experts(256, 256, 1));
  CHECK(all.batch == 54);
  CHECK(all.m == 54);
  CHECK(equal(all, typical(experts(200, 256, 1))));
  // Rows by the expectation's bucket.
  const NormalProblem many = typical(experts(32 * 190, 32, 0));
  CHECK(many.expected_m == 192);
  CHECK(many.batch == 32);
  CHECK(many.m == many.batch * 192);
  // Of counts, up to four times as many as expected.
  const NormalProblem counts = typical(experts(4096, 32, 20, Grouping::counts));
  CHECK(counts.m == 4 * 24);
  CHECK(counts.a.stride == counts.m * counts.a.ld);
  CHECK(typical(experts(20, 32, 20, Grouping::counts)).m == 24);
  // It is typical of itself, and has a text.
  for (const NormalProblem& p : {all, many, counts}) {
    CHECK(equal(typical_problem(p), p));
    CHECK(equal(normalise(parse_problem(to_string(p))), p));
    const NormalProblem batch = as_batch(p);
    CHECK(batch.grouping == Grouping::none);
    CHECK(batch.m == p.expected_m);
    CHECK(equal(normalise(parse_problem(to_string(batch))), batch));
  }
  const NormalProblem dense = normalise({.m = 64, .n = 64, .k = 64});
  CHECK(equal(typical_problem(dense), dense));
}

TEST_CASE("What is measured for groups along k is few of them, of as much of k as is expected",
          "[groups][along_k][tuning]") {
  const auto along_k = [](std::int64_t k, std::int64_t groups, Layout a = Layout::column_major) {
    Problem p{.m = 512, .n = 2048, .k = k, .batch = groups, .grouping = Grouping::along_k};
    p.a.type = p.b.type = p.d.type = DataType::bf16;
    p.a.layout = a;
    return p;
  };
  const auto typical = [](const Problem& p) { return typical_problem(normalise(p)); };
  const NormalProblem few = typical(along_k(32 * 190, 32));
  CHECK(few.expected_m == 192);
  CHECK(few.batch == 32);
  CHECK(few.k == 32 * 192);
  CHECK(equal(few, typical(along_k(31 * 180, 31))));
  // As many tiles at most as fill a large GPU several times: 64 a group here.
  CHECK(typical(along_k(4096 * 64, 4096)).batch == 66);
  // Where k is along the rows in memory these are longer, and aligned as they were.
  const NormalProblem rows = typical(along_k(5 * 100 + 1, 5, Layout::row_major));
  CHECK(rows.k == 6 * 128);
  CHECK(rows.a.ld == 2 * 501);
  for (const NormalProblem& p : {few, rows}) {
    CHECK(equal(typical_problem(p), p));
    CHECK(equal(normalise(parse_problem(to_string(p))), p));
    const NormalProblem batch = as_batch(p);
    CHECK(batch.grouping == Grouping::none);
    CHECK(batch.k == p.expected_m);
    CHECK(batch.b.stride == batch.k * 2048);
    CHECK(batch.a.stride == batch.k * (p.a.layout == Layout::row_major ? 1 : 512));
  }
  const NormalProblem nothing = normalise(along_k(0, 3));
  CHECK(equal(typical_problem(nothing), nothing));
}

TEST_CASE("Rows come to groups by chance, to each as many as it must have", "[groups][tuning]") {
  const NormalProblem offsets = normalise(experts(1000, 32, 0)),
                      counts = normalise(experts(100, 32, 20, Grouping::counts));
  for (const Distribution distribution : distributions) {
    CAPTURE(int(distribution));
    const auto ends = drawn_group_rows(offsets, distribution, 1, 1);
    REQUIRE(ends.size() == 32);
    CHECK(ends.back() == 1000);
    CHECK(ends.front() >= 1);
    for (std::size_t g = 1; g < ends.size(); ++g) CHECK(ends[g] > ends[g - 1]);
    CHECK(ends == drawn_group_rows(offsets, distribution, 1, 1));
    int rows = 0;
    for (const int count : drawn_group_rows(counts, distribution, 1, 1)) {
      CHECK((count >= 1 && count <= 100));
      rows += count;
    }
    CHECK(rows <= 32 * 24);
    CHECK(rows >= 32 * 24 / 2);
  }
}

TEST_CASE("A tuned choice of groups serves all sizes of its expectation", "[groups][tuning][emulator]") {
  const TemporaryDirectory cache;
  Context context(tuning_on_emulator(cache));
  const auto small = [](std::int64_t m, std::int64_t groups) {
    Problem p = experts(m, groups, 8);
    p.n = 64, p.k = 128;
    return p;
  };
  const TuneReport report = context.tune(small(60, 9));
  CHECK(report.candidates.size() > 3);
  for (const TunedCandidate& candidate : report.candidates) CHECK_THAT(candidate.skipped, !ContainsSubstring("wrong"));
  CHECK_THAT(report.plan.why, ContainsSubstring("as for 8 groups of about 8 rows"));
  for (const Problem& p : {small(60, 9), small(64, 8), small(58, 200)}) {
    const Plan plan = context.plan(p);
    CHECK(plan.source == PlanSource::exact);
    CHECK(plan.config == report.plan.config);
    CHECK((plan.measured_us > 0) == (p.batch == 8 && p.m == 64));
  }
  CHECK(context.plan(small(640, 80)).source != PlanSource::exact);
}

TEST_CASE("A tuned choice along k serves all sizes of its expectation", "[groups][along_k][tuning][emulator]") {
  const auto a = GENERATE(Layout::column_major, Layout::row_major);
  const TemporaryDirectory cache;
  Context context(tuning_on_emulator(cache));
  const auto gradients = [a](std::int64_t k, std::int64_t groups) {
    Problem p{.m = 48, .n = 72, .k = k, .batch = groups, .beta = 1, .grouping = Grouping::along_k};
    p.a.type = p.b.type = DataType::bf16;
    p.d.type = DataType::f32;
    p.a.layout = a;
    p.a.ld = a == Layout::row_major ? 512 : 0;
    return p;
  };
  const TuneReport report = context.tune(gradients(3 * 40, 3));
  CHECK(report.candidates.size() > 3);
  int measured = 0;
  for (const TunedCandidate& candidate : report.candidates) {
    CHECK_THAT(candidate.skipped, !ContainsSubstring("wrong") && !ContainsSubstring("is "));
    measured += candidate.skipped.empty();
  }
  CHECK(measured > 0);
  CHECK_THAT(report.plan.why, ContainsSubstring("as for 3 groups of about 48 of k"));
  for (const Problem& p : {gradients(3 * 40, 3), gradients(3 * 48, 3), gradients(3 * 34, 3)}) {
    const Plan plan = context.plan(p);
    CHECK(plan.source == PlanSource::exact);
    CHECK(plan.config == report.plan.config);
    CHECK((plan.measured_us > 0) == (p.k == 3 * 48));
  }
  CHECK(context.plan(gradients(3 * 90, 3)).source != PlanSource::exact);
}

TEST_CASE("jitgemm bench times groups, and checks what it times", "[cli][groups]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "40 72 64\n17 16 48\n");
  for (const char* const how :
       {"--groups 5 --distribution zipf", "--grouping counts --batch 3 --expected-m 9 --first 2",
        "--grouping along_k --batch 3 --layout-a t --layout-b n",
        "--grouping along_k --batch 3 --layout-a t --layout-b n --tuned"}) {
    INFO(how);
    const Output output =
        jitgemm(std::string("bench --shapes shapes.txt --type bf16 --device emulator --model --csv out.csv ") + how);
    INFO(output.err);
    CHECK(output.status == 0);
    const std::string csv = file_text(jitgemm.path("out.csv"));
    CHECK_THAT(csv, ContainsSubstring("no peer reads the sizes of groups on the device,ok"));
    CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
    std::filesystem::remove(jitgemm.path("out.csv"));
  }
  CHECK_THAT(jitgemm("bench --shapes shapes.txt --groups 2 --distribution wild").err,
             ContainsSubstring("--distribution"));
  CHECK_THAT(jitgemm("bench --shapes shapes.txt --distribution zipf --device emulator").err,
             ContainsSubstring("add --groups or --grouping"));
}
