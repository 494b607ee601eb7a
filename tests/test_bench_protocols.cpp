// The protocols of `jitgemm bench`, its arms of other Contexts, and its records of one protocol or more.
#include "catch.hpp"
#include "command.hpp"
#include "jitgemm/jitgemm.hpp"

namespace jitgemm::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

const std::string emulated = "bench --shapes shapes.txt --device emulator --frozen ";

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

void replace_in(std::string& text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  text.replace(text.find(from), from.size(), to);
}

/// The columns of a file before there were protocols.
std::string without_protocols(std::string csv) {
  replace_in(csv, ",protocol,", ",");
  for (std::size_t at = csv.find(",rep,"); at != std::string::npos; at = csv.find(",rep,")) csv.erase(at, 4);
  return csv;
}

}  // namespace

TEST_CASE("jitgemm bench has a line for each shape and protocol, and goes on with those that are missing", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n33 40 17\n");
  for (const auto& [options, protocols] : {std::pair("", std::vector<std::string>{"rep"}),
                                           {"--protocol rep", {"rep"}},
                                           {"--protocol mix", {"mix"}},
                                           {"--protocol both", {"rep", "mix"}},
                                           {"--protocol both --neighbour small --eager", {"rep eager", "mix eager"}},
                                           {"--protocol both --neighbour large", {"rep", "mix large"}},
                                           {"--protocol mix --neighbour large --eager", {"mix large eager"}}}) {
    fs::remove(jitgemm.path("out.csv"));
    const Output output = jitgemm(emulated + "--tuned --csv out.csv --json out.json " + options);
    INFO(options << "\n" << output.err);
    REQUIRE(output.status == 0);
    const std::vector<std::string> lines = lines_of(file_text(jitgemm.path("out.csv")));
    REQUIRE(lines.size() == 1 + 2 * protocols.size());
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const std::string& protocol = protocols[(i - 1) % protocols.size()];
      CHECK_THAT(lines[i], ContainsSubstring("," + protocol + ",") && ContainsSubstring(",ok"));
    }
    const nlohmann::json shapes = nlohmann::json::parse(file_text(jitgemm.path("out.json")))["shapes"];
    REQUIRE(shapes.size() == 2 * protocols.size());
    CHECK(shapes.back()["protocol"] == protocols.back());
  }
  fs::remove(jitgemm.path("out.csv"));
  REQUIRE(jitgemm(emulated + "--tuned --csv out.csv --protocol rep").status == 0);
  const Output more = jitgemm(emulated + "--tuned --csv out.csv --protocol both --resume");
  INFO(more.out << more.err);
  REQUIRE(more.status == 0);
  CHECK(count_of(more.out, "  rep") == 0);
  const std::string csv = file_text(jitgemm.path("out.csv"));
  CHECK(count_of(csv, ",rep,") == 2);
  CHECK(count_of(csv, ",mix,") == 2);
  REQUIRE(jitgemm(emulated + "--tuned --csv out.csv --protocol both --resume").status == 0);
  CHECK(file_text(jitgemm.path("out.csv")) == csv);
}

TEST_CASE("jitgemm bench reads files without protocols as rep, and takes choices of either", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n");
  REQUIRE(jitgemm(emulated + "--tuned --csv new.csv").status == 0);
  const std::string csv = file_text(jitgemm.path("new.csv"));
  write_file(jitgemm.path("old.csv"), without_protocols(csv));
  REQUIRE(file_text(jitgemm.path("old.csv")) != csv);
  for (const char* options : {"--protocol rep --csv old.csv --resume", "--tuned-as old.csv --csv again.csv"}) {
    const Output output = jitgemm(emulated + "--tuned " + options);
    INFO(output.out << output.err);
    CHECK(output.status == 0);
  }
  CHECK(file_text(jitgemm.path("old.csv")) == csv);

  // Of mix alone, with what the library would not choose.
  const std::string tuned = "sm80 32x32x32 group_m=0 stages=2 warps=2 schedule=data_parallel";
  REQUIRE(jitgemm(emulated + "--config '" + tuned + "' --tuned --protocol mix --csv mix.csv").status == 0);
  std::string mix = file_text(jitgemm.path("mix.csv"));
  const std::string head = lines_of(mix).at(0);
  const std::string chosen = nlohmann::json::parse(jitgemm("explain -m 64 -n 64 -k 64 --device emulator --no-compile "
                                                           "--json --tuning cached")
                                                       .out)["config"];
  replace_in(mix, chosen, tuned);
  write_file(jitgemm.path("mix.csv"), mix);
  REQUIRE(jitgemm(emulated + "--tuned --tuned-as mix.csv --protocol both --csv both.csv").status == 0);
  for (const std::string& line : lines_of(file_text(jitgemm.path("both.csv")))) {
    if (line != head) CHECK_THAT(line, ContainsSubstring(tuned));
  }

  replace_in(mix, ",mix,", ",mixed,");
  write_file(jitgemm.path("mix.csv"), mix);
  const Output output = jitgemm(emulated + "--tuned --csv mix.csv --resume");
  CHECK(output.status == 1);
  CHECK(lines_of(output.err).size() == 1);
  CHECK_THAT(output.err, ContainsSubstring("mix.csv:2: \"mixed\" is no protocol"));
}

TEST_CASE("jitgemm bench sums up each protocol by itself, and other arms over the tuned choice", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n33 40 17\n");
  REQUIRE(jitgemm(emulated + "--tuned --without-early --protocol both --csv out.csv").status == 0);
  // Times as of a GPU: of cuBLAS over ours 2 and 1.5 in rep, 1 and 1 in mix; serial over ours 1.25 and 0.75.
  std::vector<std::string> lines = lines_of(file_text(jitgemm.path("out.csv")));
  REQUIRE(lines.size() == 5);
  const auto columns = [](const std::string& line) {
    std::vector<std::string> all(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') quoted = !quoted;
      if (c == ',' && !quoted)
        all.emplace_back();
      else
        all.back() += c;
    }
    return all;
  };
  const std::vector<std::string> names = columns(lines[0]);
  const auto set = [&](std::string& line, const std::string& name, const std::string& value) {
    std::vector<std::string> values = columns(line);
    values.at(std::size_t(std::ranges::find(names, name) - names.begin())) = value;
    line.clear();
    for (const std::string& one : values) line += (line.empty() ? "" : ",") + one;
  };
  const char* const cublas[] = {"20", "10", "15", "10"};
  std::string csv = lines[0] + "\n";
  for (std::size_t i = 0; i < 4; ++i) {
    std::string& line = lines[i + 1];
    set(line, "tuned_us", "10");
    set(line, "cublas_us", cublas[i]);
    replace_in(line, "serial 0 ", i % 2 == 0 ? "serial 12.5 " : "serial 7.5 ");
    csv += line + "\n";
  }
  write_file(jitgemm.path("out.csv"), csv);
  const Output output = jitgemm(emulated + "--tuned --protocol both --csv out.csv --resume --json out.json");
  INFO(output.out << output.err);
  REQUIRE(output.status == 0);
  const nlohmann::json summary = nlohmann::json::parse(file_text(jitgemm.path("out.json")))["summary"];
  const auto geomean = [&](const char* protocol, const char* ratio) {
    REQUIRE(summary[protocol]["all"][ratio]["shapes"] == 2);
    return summary[protocol]["all"][ratio]["geomean"].get<double>();
  };
  CHECK(geomean("rep", "cublas / tuned") == Approx(std::sqrt(3.0)));
  CHECK(geomean("mix", "cublas / tuned") == Approx(1));
  CHECK(geomean("rep", "serial / tuned") == Approx(1.25));
  CHECK(geomean("mix", "serial / tuned") == Approx(0.75));
  const std::size_t rep = output.out.find("\nall, rep "), mix = output.out.find("\nall, mix ");
  REQUIRE((rep != std::string::npos && mix != std::string::npos));
  CHECK(rep < mix);
  CHECK_THAT(output.out.substr(mix), ContainsSubstring("serial / tuned") && ContainsSubstring("0.750"));
}

TEST_CASE("jitgemm bench --without-early and --invariant are arms, with the configurations that they should have",
          "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n");
  const Output output = jitgemm(emulated + "--tuned --without-early --invariant --csv out.csv --json out.json");
  INFO(output.out << output.err);
  REQUIRE(output.status == 0);
  const nlohmann::json shape = nlohmann::json::parse(file_text(jitgemm.path("out.json")))["shapes"][0];
  CHECK((shape.contains("serial") && shape.contains("invariant")));
  CHECK_THAT(shape["absent"].get<std::string>(), ContainsSubstring("invariant: the database has nothing"));
  const auto config = [&](const std::string& options) {
    return jitgemm("explain -m 64 -n 64 -k 64 --device emulator --no-compile --tuning cached --json " + options)
        .json()["config"]
        .get<std::string>();
  };
  std::string csv = file_text(jitgemm.path("out.csv"));
  CHECK_THAT(csv, ContainsSubstring("serial 0 0.0000 " + config("") + "; "));
  CHECK_THAT(csv, ContainsSubstring("invariant 0 0.0000 " + config("--batch-invariant") + ","));

  // An earlier file's invariant choice goes before what the database says.
  const std::string earlier = "sm80 32x32x32 group_m=0 stages=2 warps=2 schedule=data_parallel";
  replace_in(csv, "invariant 0 0.0000 " + config("--batch-invariant"), "invariant 0 0.0000 " + earlier);
  write_file(jitgemm.path("out.csv"), csv);
  REQUIRE(jitgemm("bench --shapes shapes.txt --device emulator --tuned --invariant --tuned-as out.csv --csv again.csv")
              .status == 0);
  CHECK_THAT(file_text(jitgemm.path("again.csv")), ContainsSubstring("invariant 0 0.0000 " + earlier));

  // Alone they are beside the model's choice, which serial needs.
  REQUIRE(jitgemm(emulated + "--without-early --csv alone.csv").status == 0);
  CHECK_THAT(file_text(jitgemm.path("alone.csv")), ContainsSubstring("serial 0 0.0000 sm"));
}

TEST_CASE("jitgemm bench --scales gives both operands scales, which are another case", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "32 48 64\n");
  const std::string fp8 = emulated + "--tuned --type e4m3 --layout nt --csv out.csv --resume ";
  REQUIRE(jitgemm(fp8).status == 0);
  REQUIRE(jitgemm(fp8 + "--scales").status == 0);
  const std::vector<std::string> lines = lines_of(file_text(jitgemm.path("out.csv")));
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[1], ContainsSubstring(",emulator,"));
  CHECK_THAT(lines[2], ContainsSubstring(",emulator scales,") && ContainsSubstring(",ok"));
}

TEST_CASE("jitgemm bench refuses options that say nothing together, in one line", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n");
  fs::create_directory(jitgemm.path("near"));
  for (const auto& [options, why] : {std::pair("--protocol none", "not in {rep,mix,both}"),
                                     {"--neighbour huge", "not in {small,large}"},
                                     {"--protocol rep --neighbour large", "use --protocol mix or both"},
                                     {"--scales", "are for e4m3 and e5m2"},
                                     {"--type bf16 --scales", "are for e4m3 and e5m2"},
                                     {"--without-early --no-dependent-launch", "leave it or --no-dependent-launch out"},
                                     {"--invariant --batch-invariant", "leave it or --batch-invariant out"},
                                     {"--at-hand 0", "--at-hand"},
                                     {"--at-hand 0.9", "is a factor from 1 up"},
                                     {"--choice serial=near", "something else"},
                                     {"--choice invariant=near", "something else"},
                                     {"--choice at_hand=near", "something else"},
                                     {"--choice protocol=near", "something else"}}) {
    const Output output = jitgemm(emulated + "--csv out.csv " + options);
    INFO(options << "\n" << output.err);
    CHECK(output.status != 0);
    CHECK(output.out.empty());
    CHECK(lines_of(output.err).size() == 1);
    CHECK_THAT(output.err, ContainsSubstring(why));
    CHECK_FALSE(fs::exists(jitgemm.path("out.csv")));
  }
}

}  // namespace jitgemm::test
