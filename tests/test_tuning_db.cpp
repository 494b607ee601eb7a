#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "sandbox.hpp"
#include "tuning_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

void append(const std::filesystem::path& file, const std::string& text) { std::ofstream(file, std::ios::app) << text; }

}  // namespace

TEST_CASE("A tuning record survives the way through its line", "[tuning_db]") {
  TuningRecord record = record_of(
      shape_of(normalise({.m = 77,
                          .n = 1 << 20,
                          .k = 3,
                          .batch = 3,
                          .a = {.type = bf16, .layout = Layout::column_major, .ld = 100},
                          .b = {.type = bf16, .stride = 0, .alignment = 4},
                          .d = {f32},
                          .alpha = 0,
                          .beta = 2,
                          .epilogue = {.bias = Bias::along_m, .activation = Activation::leaky_relu, .slope = 0.3}})));
  record.device_name = "A \"card\" with \xff odd name";
  record.config = parse_kernel_config("sm80 64x128x64 group_m=4 stages=4 warps=8 schedule=split_k splits=3");
  record.date = "2026-11-21";
  const std::string line = to_json_line(record);
  CHECK(line.find('\n') == std::string::npos);
  const auto back = parse_json_line(line);
  REQUIRE(back);
  CHECK(equal(back->problem, record.problem));
  CHECK(back->config == record.config);
  CHECK(back->compute_capability == 90);
  CHECK(back->sm_count == 132);
  CHECK_FALSE(back->emulated);
  CHECK(back->median_us == 12.5);
  CHECK(back->spread == 0.02);
  CHECK(back->library_version == JITGEMM_VERSION);
  CHECK(back->date == "2026-11-21");
  CHECK(to_json_line(*back) == line);
}

TEST_CASE("A line without an accumulation is about the fast one", "[tuning_db]") {
  Problem problem{.m = 64, .n = 64, .k = 64, .a = {e4m3}, .b = {e5m2}, .d = {bf16}};
  const NormalProblem fast = shape_of(normalise(problem));
  problem.accumulation = Accumulation::promoted;
  const NormalProblem promoted = shape_of(normalise(problem));
  const auto line_of = [](const NormalProblem& p) {
    TuningRecord record = record_of(p);
    record.config.block_k = 64;
    return to_json_line(record);
  };
  CHECK(line_of(fast).find("accumulation") == std::string::npos);  // older versions read it, too
  const auto read_fast = parse_json_line(line_of(fast)), read_promoted = parse_json_line(line_of(promoted));
  REQUIRE(read_fast);
  REQUIRE(read_promoted);
  CHECK(equal(read_fast->problem, fast));
  CHECK(equal(read_promoted->problem, promoted));
}

TEST_CASE("A line that is damaged anywhere is refused or read, never worse", "[tuning_db]") {
  const std::string line = to_json_line(record_of(shape(1024, 1024, 1024)));
  for (std::size_t i = 0; i < line.size(); ++i) {
    for (const char c : {'\0', '}', '9', '-', '"', char(0x80)}) {
      std::string damaged = line;
      damaged[i] = c;
      std::string why;
      if (!parse_json_line(damaged, &why) && why.empty()) FAIL_CHECK(damaged);
    }
    CHECK_FALSE(parse_json_line(line.substr(0, i)));
  }
  for (const char* text : {"", "{}", "[]", "null", "1", "\"x\"", "{\"schema\":3}"}) CHECK_FALSE(parse_json_line(text));
}

TEST_CASE("What one process tuned another finds", "[tuning_db]") {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "deep" / "tuning.jsonl";
  TuningDb writer(file), reader(file);
  CHECK(reader.find(shape(512, 512, 512), h200).match == Match::none);
  writer.add(record_of(shape(512, 512, 512), 64));
  TuningLookup found = reader.find(shape(512, 512, 512), h200);
  CHECK(found.match == Match::exact);
  CHECK(found.config.block_m == 64);
  CHECK(found.measured_us == 12.5);
  CHECK_THAT(found.why, ContainsSubstring("measured 20") && ContainsSubstring("H200"));

  writer.add(record_of(shape(512, 512, 512), 32));  // the last line wins, for those who have read the first too
  CHECK(reader.find(shape(512, 512, 512), h200).config.block_m == 32);
  CHECK(TuningDb(file).find(shape(512, 512, 512), h200).config.block_m == 32);
  CHECK(reader.records().size() == 1);

  std::filesystem::remove(file);
  CHECK(reader.find(shape(512, 512, 512), h200).match == Match::none);
  writer.add(record_of(shape(256, 256, 256)));
  CHECK(reader.records().size() == 1);
}

TEST_CASE("Damaged and foreign lines are skipped each on its own, with one warning", "[tuning_db]") {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "tuning.jsonl";
  const CapturedLog log;
  const std::string good = to_json_line(record_of(shape(512, 512, 512)));
  append(file,
         "not json\n" + good + "\n\n{\"schema\":1}\n" + std::string("\0\xff\n", 3) + "{\"schema\":99,\"x\":[1,2]}\n");
  append(file, to_json_line(record_of(shape(8192, 512, 512))) + "\n");
  TuningDb db(file);
  CHECK(db.records().size() == 2);
  append(file, "more rubbish\n");
  CHECK(db.records().size() == 2);
  CHECK(log.count("skipped line") == 1);
  CHECK_THAT(log.text(), ContainsSubstring("skipped line 1 "));
}

TEST_CASE("A last line cut short does not spoil the next record", "[tuning_db]") {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "tuning.jsonl";
  const CapturedLog log;
  const std::string line = to_json_line(record_of(shape(512, 512, 512)));
  append(file, line + "\n" + line.substr(0, line.size() / 2));
  TuningDb db(file);
  CHECK(db.records().size() == 1);
  CHECK(log.text().empty());  // it may be an append under way
  db.add(record_of(shape(8192, 8192, 8192)));
  CHECK(db.records().size() == 2);
  CHECK(TuningDb(file).records().size() == 2);
}

TEST_CASE("Eight processes that append at once lose nothing", "[tuning_db]") {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "tuning.jsonl";
  constexpr int processes = 8, records = 50;
  std::vector<pid_t> children;
  for (int process = 0; process < processes; ++process) {
    children.push_back(spawn([&] {
      TuningDb db(file);
      for (int i = 0; i < records; ++i) db.add(record_of(shape(1 + process, 1 + i, 64)));
      expect(db.records().size() >= records, "a process finds its own records");
      return 0;
    }));
  }
  for (pid_t child : children) CHECK(wait_for(child) == 0);
  const CapturedLog log;
  TuningDb db(file);
  CHECK(db.records().size() == processes * records);
  CHECK(log.text().empty());
}

TEST_CASE("Threads share a tuning database", "[tuning_db]") {
  const TemporaryDirectory directory;
  TuningDb db(directory.path() / "tuning.jsonl");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&db, t] {
      for (int i = 0; i < 10; ++i) {
        db.add(record_of(shape(1 + t, 1 + i, 64)));
        db.find(shape(1 + t, 1 + i, 64), h200);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(db.records().size() == 40);
}

TEST_CASE("Without a usable file, results last as long as the process", "[tuning_db]") {
  const TemporaryDirectory directory;
  const CapturedLog log;
  TuningDb memory(std::nullopt);
  memory.add(record_of(shape(512, 512, 512)));
  CHECK(memory.find(shape(512, 512, 512), h200).match == Match::exact);
  CHECK(log.text().empty());

  SECTION("a folder is in its place") { std::filesystem::create_directory(directory.path() / "tuning.jsonl"); }
  SECTION("a FIFO is in its place") { REQUIRE(mkfifo((directory.path() / "tuning.jsonl").c_str(), 0600) == 0); }
  SECTION("its folder is a file") {
    append(directory.path() / "file", "x");
    TuningDb db(directory.path() / "file" / "tuning.jsonl");
    db.add(record_of(shape(512, 512, 512)));
    CHECK(db.find(shape(512, 512, 512), h200).match == Match::exact);
    CHECK(log.count("cannot be written") == 1);
    return;
  }
  TuningDb db(directory.path() / "tuning.jsonl");
  db.add(record_of(shape(512, 512, 512)));
  db.add(record_of(shape(512, 512, 1024)));
  CHECK(db.find(shape(512, 512, 512), h200).match == Match::exact);
  CHECK(db.records().size() == 2);
  CHECK(log.count("cannot be written") == 1);
}

TEST_CASE("The nearest record answers for a problem within a factor of two", "[tuning_db]") {
  TuningDb db(std::nullopt);
  db.add(record_of(shape(1024, 1024, 1024), 64));
  db.add(record_of(shape(4096, 4096, 4096), 32));
  const TuningLookup found = db.find(shape(1024, 1024, 1536), h200);
  CHECK(found.match == Match::nearest);
  CHECK(found.config.block_m == 64);
  CHECK(found.measured_us == 0);
  CHECK_THAT(found.why, ContainsSubstring("nearest is m=1024 n=1024 k=1024 at distance 0.58"));
  CHECK(db.find(shape(2048, 2048, 2048), h200).match == Match::nearest);
  CHECK(db.find(shape(2560, 2560, 2560), h200).config.block_m == 32);
  CHECK(db.find(shape(511, 1024, 1024), h200).match == Match::none);
  CHECK(db.find(shape(1024, 1024, 2056), h200).match == Match::none);

  db.add(record_of(shape(1032, 1024, 1024), 128));
  CHECK(db.find(shape(1100, 1024, 1024), h200).config.block_m == 128);
}

TEST_CASE("A record answers only for its kind of problem", "[tuning_db]") {
  TuningDb db(std::nullopt);
  db.add(record_of(shape(1024, 1024, 1024), 64));
  const auto match = [&](const Problem& problem) { return db.find(shape_of(normalise(problem)), h200).match; };
  CHECK(match({.m = 1024, .n = 1024, .k = 1024, .alpha = 3}) == Match::exact);
  CHECK(match({.m = 1024, .n = 1024, .k = 1024, .beta = 1}) == Match::nearest);
  CHECK(match({.m = 1024, .n = 1024, .k = 1024, .a = {.ld = 2048}}) == Match::nearest);
  CHECK(match({.m = 1024, .n = 1024, .k = 1024, .a = {bf16}, .b = {bf16}}) == Match::none);
  CHECK(match({.m = 1024, .n = 1024, .k = 1024, .d = {f32}}) == Match::none);
  CHECK(match({.m = 1024, .n = 1024, .k = 1024, .b = {.layout = Layout::column_major}}) == Match::none);
  CHECK(match({.m = 1024, .n = 1024, .k = 1024, .alpha = 0}) == Match::none);

  // Legality is checked again: TMA cannot load rows that are not 16-byte aligned.
  TuningRecord hopper = record_of(shape(4096, 4096, 4096));
  hopper.config = parse_kernel_config("sm90 128x256x64 group_m=8 stages=4 warps=8 schedule=data_parallel");
  db.add(hopper);
  CHECK(match({.m = 4096, .n = 4096, .k = 4104}) == Match::nearest);
  CHECK(match({.m = 4096, .n = 4096, .k = 4097}) == Match::none);
}

TEST_CASE("A record answers only for its kind of device", "[tuning_db]") {
  TuningDb db(std::nullopt);
  const NormalProblem problem = shape(1024, 1024, 1024);
  db.add(record_of(problem, 64));
  DeviceInfo device = h200;

  device.emulated = true;
  CHECK(db.find(problem, device).match == Match::none);
  CHECK(db.find(problem, device_info_for("sm_80")).match == Match::none);

  device = h200;
  device.sm_count = 114;
  CHECK(db.find(problem, device).match == Match::nearest);
  TuningRecord split = record_of(problem);
  split.config.schedule = Schedule::split_k;
  split.config.splits = 4;
  db.add(split);  // replaces the other; its split counts on 132 SMs
  CHECK(db.find(problem, h200).match == Match::exact);
  CHECK(db.find(problem, device).match == Match::none);

  device = h200;
  device.name = "H100";
  db.add(record_of(problem, 32, device));
  CHECK(db.find(problem, device).config.block_m == 32);
  CHECK(db.find(problem, h200).config.splits == 4);
  device.name = "H20";  // neither: the later
  CHECK(db.find(problem, device).match == Match::exact);
  CHECK(db.find(problem, device).config.block_m == 32);
}
