// What others may leave in the tuning database's file: torn, huge, damaged and foreign lines.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "sandbox.hpp"
#include "tuning_files.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
namespace fs = std::filesystem;

namespace {

const NormalProblem first = shape(512, 512, 512), second = shape(600, 600, 600), third = shape(700, 700, 700);

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

TEST_CASE("A record with text that would steer a terminal is not read", "[tuning_db][security]") {
  const std::string escape = "\x1b[2J\r\nx";
  CHECK(parse_json_line(line_with("/date", "2026-11-22T01:02Z")));
  CHECK_FALSE(parse_json_line(line_with("/date", escape)));
  CHECK_FALSE(parse_json_line(line_with("/device/name", escape)));
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
  CHECK(parse_json_line(line_with("/runners_up", {{{"config", "sm80 128x128x32"}, {"median_us", 13}}})));
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
      line_with("/runners_up", {{{"config", "sm80 128x128x32"}, {"median_us", 0}}}),
      line_with("/runners_up", {{{"config", "sm80 128x128x32"}, {"median_us", -1}}}),
      line_with("/runners_up", ""),
      line_with("/runners_up", nlohmann::json::array({1})),
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
      line_with("/device", nullptr),
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
      line_with("/problem/beta", nullptr),
      line_with_text("\"k\":512", "\"k\":512,\"beta\":-inf"),
      line_with("/problem/lda", 511),
      line_with("/problem/ldd", std::int64_t(1) << 62),
      line_with("/problem/ldb", {512}),
      line_with("/problem/align_a", "16"),
      line_with("/problem/align_b", 3),
      line_with("/problem/align_b", 4294967296 + 16),
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
    CHECK(why.find("json.exception.type_error") == std::string::npos);  // in the file's own terms
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
