// `jitgemm tune --calibrate`, and the arms of `jitgemm bench` that tell choices apart.
#include <algorithm>
#include <map>

#include "catch.hpp"
#include "command.hpp"
#include "jitgemm/jitgemm.hpp"

namespace jitgemm::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

/// name -> value, of fields that no quote has commas in.
std::map<std::string, std::string> row_of(const std::string& header, const std::string& line) {
  const auto split = [](const std::string& text) {
    std::vector<std::string> parts(1);
    bool quoted = false;
    for (const char c : text) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        parts.emplace_back();
      else
        parts.back() += c;
    }
    return parts;
  };
  const std::vector<std::string> names = split(header), values = split(line);
  REQUIRE(names.size() == values.size());
  std::map<std::string, std::string> row;
  for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = values[i];
  return row;
}

/// name -> configuration, of the column `others`.
std::map<std::string, std::string> arms_of(const std::string& others) {
  std::map<std::string, std::string> arms;
  std::istringstream parts(others);
  for (std::string part; std::getline(parts, part, ';');) {
    std::istringstream words(part);
    std::string name, config;
    double us = -1, spread = -1;
    words >> name >> us >> spread >> std::ws;
    std::getline(words, config);
    CAPTURE(part);
    CHECK(us == 0);  // nothing is timed on a CPU
    CHECK(spread == 0);
    CHECK(to_string(parse_kernel_config(config)) == config);
    CHECK(arms.emplace(name, config).second);
  }
  return arms;
}

}  // namespace

TEST_CASE("jitgemm tune --calibrate refuses the emulator, and what is compiled only, and writes nothing", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  for (const char* device :
       {"--device emulator", "--device emulator --arch sm_90a --json", "--arch sm_90a --device compile_only"}) {
    const Output output = jitgemm(std::string("tune --calibrate ") + device);
    INFO(device << "\n" << output.err);
    CHECK(output.status == 1);
    CHECK(output.out.empty());
    CHECK(lines_of(output.err).size() == 1);
    CHECK(output.err.starts_with("jitgemm: error: "));
    if (output.err.find("compile_only") == std::string::npos) {
      CHECK_THAT(output.err, ContainsSubstring("emulator") && ContainsSubstring("calibrate on the GPU"));
    }
    CHECK_FALSE(fs::exists(jitgemm.path("cache")));
  }
}

TEST_CASE("jitgemm bench refuses a --choice that is not NAME=DIR", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n");
  for (const char* choice : {"x", "=x", "x=", "="}) {
    const Output output =
        jitgemm(std::string("bench --shapes shapes.txt --device emulator --csv out.csv --choice ") + choice);
    INFO(output.err);
    CHECK(output.status == 1);
    CHECK(output.out.empty());
    CHECK(lines_of(output.err).size() == 1);
    CHECK_THAT(output.err, ContainsSubstring(std::string("--choice ") + choice + " is not NAME=DIR"));
    CHECK_FALSE(fs::exists(jitgemm.path("out.csv")));
  }
}

TEST_CASE("jitgemm bench refuses a --choice whose name or directory cannot be, and leaves both alone", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n");
  fs::create_directory(jitgemm.path("near"));
  for (const auto& [choices, why] : {std::pair("--choice 'my run=near'", "no word"),
                                     {"--choice 'a;b=near'", "no word"},
                                     {"--choice 'a,b=near'", "no word"},
                                     {"--choice check=near", "something else"},
                                     {"--choice tuned=near", "something else"},
                                     {"--choice repeat1=near", "something else"},
                                     {"--choice finalist2=near", "something else"},
                                     {"--choice a=near --choice a=near", "something else"},
                                     {"--choice a=nowhere", "names no directory"},
                                     {"--choice a=shapes.txt", "names no directory"}}) {
    const Output output =
        jitgemm(std::string("bench --shapes shapes.txt --device emulator --csv out.csv --model ") + choices);
    INFO(choices << "\n" << output.err);
    CHECK(output.status == 1);
    CHECK(lines_of(output.err).size() == 1);
    CHECK_THAT(output.err, ContainsSubstring(why));
    CHECK_FALSE(fs::exists(jitgemm.path("out.csv")));
    CHECK_FALSE(fs::exists(jitgemm.path("nowhere")));
  }
}

TEST_CASE("jitgemm bench --resume tries again what failed, and what was made under other constraints", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n33 40 17\n");
  const std::string arguments = "bench --shapes shapes.txt --device emulator --model --csv out.csv --resume ";
  const Output first = jitgemm(arguments);
  REQUIRE(first.status == 0);
  const std::string csv = file_text(jitgemm.path("out.csv"));
  std::string failed = csv;
  const std::size_t ok = failed.rfind(",ok");
  REQUIRE(ok != std::string::npos);
  write_file(jitgemm.path("out.csv"), failed.replace(ok, 3, ",not enough memory"));
  REQUIRE(jitgemm(arguments).status == 0);
  CHECK(file_text(jitgemm.path("out.csv")) == csv);

  REQUIRE(jitgemm(arguments + "--batch-invariant").status == 0);
  CHECK(lines_of(file_text(jitgemm.path("out.csv"))).size() == 1 + 2 + 2);
  CHECK_THAT(file_text(jitgemm.path("out.csv")), ContainsSubstring(",emulator batch_invariant,"));
  const Output nothing = jitgemm("bench --shapes shapes.txt --device emulator --model --resume");
  CHECK(nothing.status == 1);
  CHECK_THAT(nothing.err, ContainsSubstring("add --csv"));
}

TEST_CASE("jitgemm bench --frozen says where the database has nothing", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n");
  REQUIRE(jitgemm("bench --shapes shapes.txt --device emulator --tuned --frozen --csv out.csv").status == 0);
  CHECK_THAT(file_text(jitgemm.path("out.csv")), ContainsSubstring("tuned: the database has nothing"));
}

TEST_CASE("jitgemm bench --tuned-as takes the choices of an earlier CSV file, and fails for shapes that it lacks",
          "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n33 40 17\n");
  const std::string arguments = "bench --shapes shapes.txt --device emulator --tuned ";
  REQUIRE(jitgemm(arguments + "--frozen --csv old.csv").status == 0);
  // What the library would not choose now.
  const std::string tuned = "sm80 32x32x32 group_m=0 stages=2 warps=2 schedule=data_parallel";
  const std::vector<std::string> old = lines_of(file_text(jitgemm.path("old.csv")));
  std::string changed = old.at(0) + "\n";
  for (const std::size_t i : {1, 2}) {
    const std::string chosen = row_of(old.at(0), old.at(i)).at("tuned_config");
    REQUIRE(chosen != tuned);
    std::string line = old.at(i);
    changed += line.replace(line.find(chosen), chosen.size(), tuned) + "\n";
  }
  write_file(jitgemm.path("old.csv"), changed);

  const Output again = jitgemm(arguments + "--tuned-as old.csv --csv new.csv");
  INFO(again.out << again.err);
  REQUIRE(again.status == 0);
  const std::vector<std::string> lines = lines_of(file_text(jitgemm.path("new.csv")));
  REQUIRE(lines.size() == 3);
  for (const std::size_t i : {1, 2}) {
    const auto row = row_of(lines[0], lines[i]);
    CHECK(row.at("tuned_config") == tuned);
    CHECK(row.at("absent").empty());
    CHECK(row.at("check") == "ok");
  }

  write_file(jitgemm.path("shapes.txt"), "64 64 64\n64 64 65\n");
  const Output more = jitgemm(arguments + "--tuned-as old.csv --csv more.csv");
  CHECK(more.status == 1);
  CHECK_THAT(file_text(jitgemm.path("more.csv")), ContainsSubstring("old.csv has no tuned choice for this shape"));
  CHECK(jitgemm(arguments + "--tuned-as nowhere.csv --csv none.csv").status != 0);
}

TEST_CASE("jitgemm bench takes other choices and repeats as arms, and reads them back", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n33 40 17\n");
  // What `near` chooses is told from all others' choices by its tile.
  const std::string tuned = "sm80 32x32x32 group_m=0 stages=2 warps=2 schedule=data_parallel";
  REQUIRE(jitgemm("tune -m 64 -n 64 -k 64 --device emulator --tuning-budget 0.05").status == 0);
  fs::create_directory(jitgemm.path("near"));
  nlohmann::json record = nlohmann::json::parse(lines_of(file_text(jitgemm.path("cache") / "tuning.jsonl")).at(0));
  record["config"] = tuned;
  write_file(jitgemm.path("near") / "tuning.jsonl", record.dump() + "\n");
  fs::remove(jitgemm.path("cache") / "tuning.jsonl");

  const std::string arguments =
      "bench --shapes shapes.txt --device emulator --derived --choice near=near --repeats 2 --first 2 --finalists 1 "
      "--csv out.csv ";
  const Output first = jitgemm(arguments + "--json out.json");
  INFO(first.out << first.err);
  REQUIRE(first.status == 0);
  const std::string csv = file_text(jitgemm.path("out.csv"));
  const std::vector<std::string> lines = lines_of(csv);
  REQUIRE(lines.size() == 3);
  for (const std::size_t i : {1, 2}) {
    const auto row = row_of(lines[0], lines[i]);
    CAPTURE(lines[i]);
    CHECK(row.at("check") == "ok");
    CHECK(row.at("absent").empty());
    CHECK(std::ranges::count(row.at("pinned"), ';') == 1);  // --first 2
    const auto arms = arms_of(row.at("others"));
    CHECK(arms.size() == 4);
    REQUIRE(
        (arms.contains("derived") && arms.contains("near") && arms.contains("repeat1") && arms.contains("repeat2")));
    if (i == 1) CHECK(arms.at("near") == tuned);
    // Repeats are of a column's arm, without which they say nothing.
    CHECK(row.at("tuned_config").empty());
    CHECK(arms.at("repeat1") == row.at("model_config"));
    CHECK(arms.at("repeat2") == row.at("model_config"));
  }
  const nlohmann::json shape = nlohmann::json::parse(file_text(jitgemm.path("out.json")))["shapes"][0];
  for (const char* name : {"derived", "near", "repeat1", "repeat2"}) CHECK(shape.contains(name));

  // Stopped within the second line: the first is read and written as it was.
  write_file(jitgemm.path("out.csv"), csv.substr(0, csv.size() - 20));
  const Output resumed = jitgemm(arguments + "--resume");
  INFO(resumed.err);
  CHECK(resumed.status == 0);
  CHECK_THAT(resumed.out, ContainsSubstring("1 result in out.csv already"));
  CHECK(file_text(jitgemm.path("out.csv")) == csv);
  CHECK(jitgemm(arguments + "--resume").status == 0);
  CHECK(file_text(jitgemm.path("out.csv")) == csv);
}

TEST_CASE("jitgemm bench --resume reads back times of other choices", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n");
  fs::create_directory(jitgemm.path("near"));
  const std::string arguments =
      "bench --shapes shapes.txt --device emulator --model --repeats 1 --choice near=near --csv out.csv ";
  REQUIRE(jitgemm(arguments).status == 0);
  std::string csv = file_text(jitgemm.path("out.csv"));
  for (const auto& [plain, timed] :
       {std::pair("near 0 0.0000 ", "near 12.345 0.0625 "), {"repeat1 0 0.0000 ", "repeat1 0.5 0.1000 "}}) {
    REQUIRE(csv.find(plain) != std::string::npos);
    csv.replace(csv.find(plain), std::string(plain).size(), timed);
  }
  write_file(jitgemm.path("out.csv"), csv);
  const Output resumed = jitgemm(arguments + "--resume --json out.json");
  INFO(resumed.err);
  REQUIRE(resumed.status == 0);
  CHECK(file_text(jitgemm.path("out.csv")) == csv);
  const nlohmann::json shape = nlohmann::json::parse(file_text(jitgemm.path("out.json")))["shapes"][0];
  CHECK(shape["near"]["us"] == 12.345);
  CHECK(shape["near"]["spread"] == 0.0625);
  CHECK(shape["repeat1"]["us"] == 0.5);
}

TEST_CASE("jitgemm bench --kernels times each kernel of a list", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 48 512\n");
  write_file(jitgemm.path("few.txt"),
             "m=64 n=64 k=64; sm90 64x16x64 group_m=8 stages=4 warps=4 schedule=data_parallel\n"
             "m=64 n=64 k=64; sm90 64x32x64 group_m=8 stages=4 warps=4 schedule=data_parallel\n");
  for (const std::string type : {"f16", "e4m3"}) {
    const std::string layout = type == "e4m3" ? " --layout nt" : "";
    const Output output = jitgemm("bench --device emulator --shapes shapes.txt --no-peers --kernels few.txt --csv " +
                                  type + ".csv --type " + type + layout);
    INFO(output.err);
    REQUIRE(output.status == 0);
    const std::vector<std::string> lines = lines_of(file_text(jitgemm.path(type + ".csv")));
    REQUIRE(lines.size() == 2);
    const auto row = row_of(lines[0], lines[1]);
    CHECK(row.at("model_config").empty());
    std::vector<KernelConfig> kernels;
    std::istringstream parts(row.at("pinned"));
    for (std::string part; std::getline(parts, part, ';');)
      kernels.push_back(parse_kernel_config(part.substr(part.find("sm90"))));
    std::map<int, int> of_width;
    for (const KernelConfig& config : kernels) {
      CHECK(config.block_k == (type == "f16" ? 64 : 128));
      ++of_width[config.block_n];
    }
    CHECK(of_width.size() == 2);
    for (const int width : {16, 32}) CHECK((of_width[width] == 1 || of_width[width] == 2));
  }
  const Output bad = jitgemm("bench --device emulator --shapes shapes.txt --kernels shapes.txt");
  CHECK(bad.status == 1);
  CHECK_THAT(bad.err, ContainsSubstring("shapes.txt:1"));
}

}  // namespace jitgemm::test
