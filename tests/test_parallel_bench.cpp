// `jitgemm parallel bench` but for its measuring: shapes, what ranks have measured as one result, summary, options.
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "command.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "parallel/options.hpp"
#include "parallel/record.hpp"
#include "parallel/shapes.hpp"
#include "parallel/summary.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::cli;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

namespace {

constexpr Exchange gather = Exchange::all_gather_a, scatter = Exchange::reduce_scatter_d,
                   reduce = Exchange::all_reduce_d;

/// With the same time in each of three samples.
ParallelRecord record_of(const ParallelShape& shape, double cublas_nccl, double ours_nccl, double ours,
                         double cublas_alone = 0, double ours_alone = 0) {
  RankResult rank{
      .shape = shape, .us = {}, .eager = {}, .overlapped = true, .config = "a configuration", .why = "it hides"};
  const std::array<double, 5> us{cublas_nccl, ours_nccl, ours, cublas_alone, ours_alone};
  for (std::size_t i = 0; i < us.size(); ++i)
    if (us[i] > 0) rank.us[std::string(parallel_arm::all[i])] = {us[i], us[i], us[i]};
  return merge({rank, rank});
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields{""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  return fields;
}

std::string field(const ParallelRecord& record, const std::string& name) {
  const auto names = fields_of(csv_header_of_parallel()), values = fields_of(csv_line(record, "a GPU", "2.28.9"));
  REQUIRE(names.size() == values.size());
  const auto found = std::find(names.begin(), names.end(), name);
  REQUIRE(found != names.end());
  return values[std::size_t(found - names.begin())];
}

}  // namespace

TEST_CASE("A file of products across ranks has an exchange and the layer's sizes", "[parallel_bench]") {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "layers.txt";
  write_file(
      file,
      "# of a small model\nall_gather_a 512 1024 256\n\n  reduce_scatter_d 64 32 16  # down\nall_reduce_d 1 8 4\n");
  CHECK(read_parallel_shapes(file) ==
        std::vector<ParallelShape>{{gather, 512, 1024, 256}, {scatter, 64, 32, 16}, {reduce, 1, 8, 4}});
  for (const ParallelShape& shape : read_parallel_shapes(file)) {
    write_file(file, to_string(shape) + "\n");
    CHECK(read_parallel_shapes(file) == std::vector<ParallelShape>{shape});
  }
  const auto why = [&](const std::string& text) {
    write_file(file, text);
    return refusal(ErrorCode::io, [&] { read_parallel_shapes(file); });
  };
  CHECK_THAT(why("all_gather_a 1 2 3\ngather 1 2 3\n"),
             ContainsSubstring("layers.txt:2: unknown exchange \"gather\": use all_gather_a"));
  for (const char* const line : {"512 1024 256", "all_gather_a 1 2", "all_gather_a 1 2 3 4", "all_gather_a 1 2 x"})
    CHECK_THAT(why(line), ContainsSubstring("layers.txt:1") && ContainsSubstring("is not `exchange m n k`"));
  CHECK_THAT(why("all_reduce_d 0 8 8\n"), ContainsSubstring("give 1 or more"));
  CHECK_THAT(why("all_reduce_d 8 2147483648 8\n"), ContainsSubstring("out of range"));
  CHECK_THAT(why("# none\n"), ContainsSubstring("has no `exchange m n k` line"));
}

TEST_CASE("Llama's layers divide among 2, 4 and 8 ranks", "[parallel_bench]") {
  const std::vector<ParallelShape> shapes = llama_shapes();
  CHECK(shapes.size() == 52);
  std::set<std::string> texts;
  for (const ParallelShape& shape : shapes) {
    texts.insert(to_string(shape));
    for (const int ranks : {2, 4, 8}) {
      CAPTURE(to_string(shape), ranks);
      const Problem problem = problem_of_rank(shape, ranks, bf16), result = problem_of_result(shape, ranks, bf16);
      const bool gathers = shape.exchange == gather;
      CHECK(problem.m == shape.m);
      CHECK(problem.n * (gathers ? ranks : 1) == shape.n);
      CHECK(problem.k * (gathers ? 1 : ranks) == shape.k);
      CHECK(result.m * (shape.exchange == scatter ? ranks : 1) == shape.m);
      CHECK(result.n == problem.n);
      CHECK(result.k == shape.k);
      CHECK(problem.b.layout == Layout::column_major);
    }
  }
  CHECK(texts.size() == shapes.size());
  for (const char* const known :
       {"all_gather_a 2048 10240 8192", "all_gather_a 8192 106496 16384", "reduce_scatter_d 512 8192 28672",
        "all_reduce_d 4 8192 8192", "all_reduce_d 16 8192 8192"})
    CHECK(texts.contains(known));
}

TEST_CASE("A shape that does not divide among the ranks is refused before any is started", "[parallel_bench]") {
  const auto why = [](const ParallelShape& shape, int ranks) {
    return refusal(ErrorCode::invalid_option, [&] { problem_of_rank(shape, ranks, bf16); });
  };
  CHECK_THAT(why({gather, 6, 10, 4}, 4), ContainsSubstring("n = 10 does not divide among 4 ranks"));
  CHECK_THAT(why({gather, 6, 8, 4}, 4), ContainsSubstring("m = 6 does not divide"));
  CHECK_THAT(why({scatter, 8, 10, 6}, 4), ContainsSubstring("k = 6 does not divide"));
  CHECK(why({reduce, 3, 5, 8}, 4) == "");
  ParallelBenchOptions options;
  CHECK_THAT(refusal(ErrorCode::invalid_option, [&] { task_of(options, 3); }), ContainsSubstring("among 3 ranks"));
  options.arms = {"ours", "cublas_nccl", "ours"};
  CHECK_THAT(refusal(ErrorCode::invalid_option, [&] { task_of(options, 2); }), ContainsSubstring("names ours twice"));
  options.type = "f17";
  CHECK_THAT(refusal(ErrorCode::invalid_option, [&] { task_of(options, 2); }), ContainsSubstring("f17"));
}

TEST_CASE("A sample takes as long as its slowest rank", "[parallel_bench]") {
  RankResult first{.shape = {gather, 8, 8, 8}, .us = {{"ours", {1, 5, 3}}}, .eager = {}, .config = "c", .why = "w"};
  RankResult second = first;
  second.us["ours"] = {2, 4, 9};
  const ParallelRecord both = merge({first, second});
  CHECK(both.ranks == 2);
  CHECK(both.us("ours") == 5);  // of 2, 5 and 9
  CHECK(both.arms.at("ours").launches == 3);
  CHECK(both.check == "ok");
  CHECK(both.us("ours_nccl") == 0);

  second.check = "ours: D(1, 2) is nan here";
  CHECK(merge({first, second}).check == "rank 1: ours: D(1, 2) is nan here");
  CHECK_THAT(table_row(merge({first, second})), ContainsSubstring("rank 1: ours: D(1, 2) is nan"));
  second.us["ours"].pop_back();
  CHECK_THAT(refusal(ErrorCode::internal, [&] { merge({first, second}); }),
             ContainsSubstring("rank 1 has measured something else"));
}

TEST_CASE("What a rank says of a shape arrives as it was", "[parallel_bench]") {
  const RankResult sent{.shape = {scatter, 64, 32, 16},
                        .us = {{"cublas_nccl", {1.25, 2}}, {"ours", {0.5, 0.75}}},
                        .eager = {"ours"},
                        .overlapped = true,
                        .one_shot = true,
                        .config = "sm90 128x128x64",
                        .why = "expected to be faster",
                        .check = "ours: wrong"};
  const RankResult got = parse_rank_result(nlohmann::ordered_json::parse(to_json(sent).dump()));
  CHECK(to_json(got) == to_json(sent));
  CHECK(got.us == sent.us);
  CHECK_THAT(refusal(ErrorCode::internal, [] { parse_rank_result({{"shape", {1, 2, 3}}}); }),
             ContainsSubstring("a rank's result is none"));
}

TEST_CASE("Ratios and the share of the communication that is hidden", "[parallel_bench]") {
  const ParallelRecord record = record_of({gather, 2048, 8192, 8192}, 140, 130, 110, 100, 105);
  CHECK_THAT(over_cublas_nccl(record), WithinAbs(140.0 / 110, 1e-12));
  CHECK_THAT(over_best_in_turn(record), WithinAbs(130.0 / 110, 1e-12));
  CHECK_THAT(alone_over_ours(record), WithinAbs(105.0 / 110, 1e-12));
  CHECK_THAT(share_hidden(record), WithinAbs((130.0 - 110) / (130 - 105), 1e-12));

  // Without the arm that overlaps, ours is the one in turn, which hides nothing that could be told.
  const ParallelRecord in_turn = record_of({gather, 2048, 8192, 8192}, 140, 130, 0, 100, 105);
  CHECK_THAT(over_cublas_nccl(in_turn), WithinAbs(140.0 / 130, 1e-12));
  CHECK(over_best_in_turn(in_turn) == 0);
  CHECK(std::isnan(share_hidden(in_turn)));
  CHECK(over_cublas_nccl(record_of({gather, 8, 8, 8}, 0, 130, 110)) == 0);
  CHECK(std::isnan(share_hidden(record_of({gather, 8, 8, 8}, 140, 104, 103, 100, 105))));  // nothing to hide
  CHECK(share_hidden(record_of({gather, 8, 8, 8}, 140, 130, 135, 100, 110)) < 0);
}

TEST_CASE("A shape is a line of the table and of the CSV file", "[parallel_bench]") {
  ParallelRecord record = record_of({scatter, 4096, 8192, 28672}, 700.25, 690.5, 610, 600, 590);
  CHECK(field(record, "exchange") == "reduce_scatter_d");
  CHECK(field(record, "k") == "28672");
  CHECK(field(record, "ranks") == "2");
  CHECK(field(record, "cublas_nccl_us") == "700.2");
  CHECK(field(record, "ours_spread") == "0.0000");
  CHECK(field(record, "samples") == "3");
  CHECK(field(record, "over_cublas_nccl") == "1.1480");
  CHECK(field(record, "hidden") == "0.8010");
  CHECK(field(record, "overlapped") == "yes");
  CHECK(field(record, "check") == "ok");
  CHECK_THAT(table_row(record), ContainsSubstring("reduce_scatter_d") && ContainsSubstring("700.25") &&
                                    ContainsSubstring("1.148") && ContainsSubstring("0.80"));
  record.overlapped = false;
  record.eager = {"ours"};
  record.why = "one rank, so nothing travels";
  CHECK(field(record, "one_shot") == "no");
  CHECK_THAT(table_row(record), ContainsSubstring("not overlapped: one rank, so nothing travels") &&
                                    ContainsSubstring("not captured: ours"));
  CHECK(field(record, "why") == "one rank, so nothing travels");
  record.one_shot = true;
  CHECK(field(record, "one_shot") == "yes");
  CHECK_THAT(table_row(record), ContainsSubstring("in one shot") && !ContainsSubstring("not overlapped"));
  CHECK(field(record_of({scatter, 8, 8, 8}, 0, 2, 1), "cublas_nccl_us") == "");
  CHECK(table_head().find("ratio") != std::string::npos);
}

TEST_CASE("The summary has geometric means by exchange and tokens", "[parallel_bench]") {
  const std::vector<ParallelRecord> records{
      record_of({gather, 2048, 8, 8}, 200, 190, 100, 95, 90), record_of({gather, 8192, 8, 8}, 800, 780, 100, 95, 90),
      record_of({scatter, 4096, 8, 8}, 100, 100, 100, 95, 90), record_of({gather, 512, 8, 8}, 150, 120, 100, 95, 90),
      record_of({reduce, 16, 8, 8}, 30, 26, 20, 10, 10)};
  const std::string text = parallel_summary(records);
  const auto line = [&](const std::string& begin) {
    for (const std::string& each : lines_of(text))
      if (each.starts_with(begin)) return each;
    return std::string();
  };
  CHECK_THAT(line("all_gather_a, 2048 tokens and more"),
             ContainsSubstring(" 2  ") && ContainsSubstring("4.000   2.000"));
  CHECK_THAT(line("both of these, 2048 tokens and more"),
             ContainsSubstring(" 3  ") && ContainsSubstring("2.520   1.000"));
  CHECK_THAT(line("all_gather_a, 129 to 2047"), ContainsSubstring("1.500") && ContainsSubstring("1.200"));
  CHECK_THAT(line("all_reduce_d, up to 128"), ContainsSubstring("1.500") && ContainsSubstring("0.38"));
  CHECK(line("all_reduce_d, 2048") == "");
  CHECK(parallel_summary({}).find("all_") == std::string::npos);
}

TEST_CASE("Without GPUs, jitgemm parallel bench says what it needs", "[parallel_bench][cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("layers.txt"), "all_gather_a 64 64 64\n");
  write_file(jitgemm.path("bad.txt"), "all_gather_a 64 64\n");
  const std::string bench = "parallel bench ";
  std::vector<std::pair<std::string, const char*>> answers{
      {bench + "--device emulator", "products across GPUs need GPUs of one host, and NCCL: leave --device out"},
      {bench + "--shapes layers.txt --device emulator --gpus 2", "need GPUs of one host, and NCCL"},
      {bench + "--shapes bad.txt", "bad.txt:1: \"all_gather_a 64 64\" is not `exchange m n k`"},
      {bench + "--shapes nowhere.txt", "cannot read the list nowhere.txt"}};
  if (cuda_devices().empty())
    answers.emplace_back(bench + "--csv out.csv", "no GPU found, and products across GPUs need");
  for (const auto& [words, answer] : answers) {
    const Output output = jitgemm(words);
    INFO(words << "\n" << output.err);
    CHECK(output.status == 1);
    CHECK(output.out.empty());
    CHECK(lines_of(output.err).size() == 1);
    CHECK_THAT(output.err, ContainsSubstring(answer));
  }
  CHECK_FALSE(std::filesystem::exists(jitgemm.path("out.csv")));
  for (const char* const words : {"parallel", "parallel bench --arms mine", "parallel bench --type f17",
                                  "parallel bench --samples 0", "parallel bench --seconds -1", "parallel bnch"}) {
    const Output output = jitgemm(words);
    INFO(words << "\n" << output.err);
    CHECK(output.status == 2);
    CHECK(lines_of(output.err).size() == 1);
  }
  CHECK_THAT(jitgemm("parallel bnch").err, ContainsSubstring("did you mean bench?"));
}
