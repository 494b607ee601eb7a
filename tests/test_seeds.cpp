// `jitgemm seed`, on the emulator with small sizes.
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "sandbox.hpp"

namespace jitgemm::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

/// `jitgemm seed` in a folder and with a cache of its own.
class Seed {
 public:
  struct Output {
    int status;
    std::string out, err;
  };
  static fs::path command() { return fs::read_symlink("/proc/self/exe").parent_path() / "jitgemm"; }

  Output operator()(const std::string& arguments) const {
    const std::string folder = folder_.path().string();
    const std::string line = "cd '" + folder + "' && JITGEMM_CACHE_DIR='" + folder + "/cache' '" + command().string() +
                             "' seed " + arguments + " --device emulator >out 2>err </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text("out"), text("err")};
  }
  std::string text(const std::string& name) const { return file_text(folder_.path() / name); }
  nlohmann::json json(const std::string& name) const { return nlohmann::json::parse(text(name)); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_.path() / name) << text; }

 private:
  TemporaryDirectory folder_;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

const std::string kernel = R"({"file": "a.cubin", "kernel": "matmul_kernel", "type": "e5m2", "activation": "none",
  "block_m": 128, "block_n": 256, "block_k": 64, "group_m": 8, "num_stages": 3, "num_warps": 8, "shared_bytes": 73728,
  "arguments": [{"name": "a_ptr", "type": "*fp8e5"}, {"name": "b_ptr", "type": "*fp8e5"},
    {"name": "c_ptr", "type": "*fp16"}, {"name": "M", "type": "i32"}, {"name": "global_scratch", "type": "*scratch"}],
  "divisible_by_16": ["a_ptr", "M"], "equal_to_1": ["stride_ak"]})";
const std::string manifest = R"({"format": 1, "triton": "3", "kernels": [)" + kernel + "]}";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

#define NEEDS_COMMAND() \
  if (!fs::exists(Seed::command())) SKIP("the jitgemm command is not built: build jitgemm_command too")

TEST_CASE("jitgemm seed checks repeats the tutorial's checks", "[seeds]") {
  NEEDS_COMMAND();
  const Seed seed;
  const auto output = seed("checks --sizes 80 --json checks.json");
  INFO(output.out << output.err);
  REQUIRE(output.status == 0);
  CHECK_THAT(output.out, ContainsSubstring("a CPU, so small sizes and no times"));
  const nlohmann::json json = seed.json("checks.json");
  CHECK(json["emulated"] == true);
  REQUIRE(json["results"].size() == 2);
  const std::vector<std::pair<std::string, double>> expected{{"f16", 1e-2}, {"e5m2", 0.125}};
  for (std::size_t i = 0; i < 2; ++i) {
    const nlohmann::json& result = json["results"][i];
    CHECK(result["type"] == expected[i].first);
    CHECK(result["atol"] == expected[i].second);
    REQUIRE(result["checks"].size() == 2);  // no cuBLAS here
    for (const nlohmann::json& check : result["checks"]) {
      CHECK(check["match"] == true);
      CHECK(check["largest"] > 0);  // D is rounded, the reference is not
      CHECK(check["counts"] == true);
    }
  }
}

TEST_CASE("jitgemm seed squares writes the tutorial's table, without times of a CPU", "[seeds]") {
  NEEDS_COMMAND();
  const Seed seed;
  const auto output = seed("squares --sizes 32 48 --activation leaky_relu --csv s.csv --json s.json");
  INFO(output.out << output.err);
  REQUIRE(output.status == 0);
  CHECK_THAT(output.out, ContainsSubstring("matmul-performance-f16"));
  CHECK_THAT(output.out, ContainsSubstring("matmul-performance-e5m2"));
  const std::vector<std::string> lines = lines_of(seed.text("s.csv"));
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] == "type,activation,M,N,K,provider,ms,min_ms,max_ms,tflops,min_tflops,max_tflops,config");
  CHECK_THAT(lines[1], ContainsSubstring("f16,leaky_relu,32,32,32,jitgemm,,,,,,,sm"));
  CHECK_THAT(lines[4], ContainsSubstring("e5m2,leaky_relu,48,48,48,jitgemm,,,,,,,sm"));
  const nlohmann::json json = seed.json("s.json");
  CHECK(json["quantiles"] == nlohmann::json({0.5, 0.2, 0.8}));
  REQUIRE(json["rows"].size() == 4);
  CHECK(json["rows"][0]["jitgemm"]["ms"].is_null());
  CHECK_FALSE(json["rows"][0].contains("cublas"));
}

TEST_CASE("jitgemm seed singles prints the notebook's debug fields", "[seeds]") {
  NEEDS_COMMAND();
  const Seed seed;
  const auto output = seed("singles --emulator-sms 5 --json singles.json");
  INFO(output.out << output.err);
  REQUIRE(output.status == 0);
  for (const char* line :
       {"sizes: M = 192, N = 224, K = 94\n", "blocks: BLK_M = 32, BLK_N = 64, BLK_K = 32\n",
        "total blocks: 6 x 4 = 24\n", "first_wave (Stream-K) tiles: 9\n", "full_tiles (data-parallel) tiles: 15\n",
        "total tiles: 9 + 15 = 24\n", "total_programs_streamk=5\n", "total_blocking_tiles=15\n", "iters_per_tile=3\n",
        "total_iters_streamk=27\n", "hybrid stream-k (grid=10, two_tiles=False): right\n",
        "tiles only (grid=0): right\n"}) {
    CHECK_THAT(output.out, ContainsSubstring(line));
  }
  const nlohmann::json json = seed.json("singles.json");
  REQUIRE(json["singles"].size() == 3);
  const nlohmann::json& cases = json["singles"][0]["cases"];
  REQUIRE(cases.size() == 5);
  const auto facts = [&](std::size_t i) {
    const nlohmann::json& debug = cases[i]["debug"];
    return nlohmann::json({cases[i]["grid"], cases[i]["2 tiles"], debug["total_tiles_streamk"],
                           debug["total_blocking_tiles"], debug["total_iters_streamk"]});
  };
  CHECK(facts(0) == nlohmann::json({5, true, 9, 15, 27}));
  CHECK(facts(1) == nlohmann::json({5, false, 4, 20, 12}));
  CHECK(facts(2) == nlohmann::json({10, true, 14, 10, 42}));
  CHECK(facts(3) == nlohmann::json({10, false, 4, 20, 12}));
  CHECK(facts(4) == nlohmann::json({0, false, 0, 24, 0}));
  CHECK(cases[0]["jitgemm_ms"].is_null());
}

TEST_CASE("jitgemm seed sweep tries the notebook's grids, stops in time and goes on", "[seeds]") {
  NEEDS_COMMAND();
  const Seed seed;
  seed.write("shapes.txt", "8192 4096 2048\n2048 8192 1024\n512 512 512\n");
  const std::string arguments = "sweep --shapes shapes.txt --emulator-sms 13 --json sweep.json";
  const auto stopped = seed(arguments + " --seconds 1e-9");
  INFO(stopped.out << stopped.err);
  REQUIRE(stopped.status == 0);
  CHECK_THAT(stopped.out, ContainsSubstring("stopped after --seconds; --resume goes on from here"));
  CHECK(seed.json("sweep.json")["results"].empty());

  REQUIRE(seed(arguments + " --first 1").status == 0);
  const nlohmann::json one = seed.json("sweep.json");
  REQUIRE(one["results"].size() == 1);
  const auto output = seed(arguments + " --first 2 --resume");
  INFO(output.out << output.err);
  REQUIRE(output.status == 0);
  CHECK_THAT(output.out, ContainsSubstring("2/2"));
  const nlohmann::json both = seed.json("sweep.json");
  REQUIRE(both["results"].size() == 2);
  CHECK(both["results"][0] == one["results"][0]);  // kept, not computed again

  const nlohmann::json& result = both["results"][0];
  CHECK(result["m"] == 128);  // a 64th, on the emulator
  CHECK(result["speedup"].is_null());
  REQUIRE(result["jitgemm"].size() == 2 * 13);  // 4 tiles, fewer than two CTAs an SM
  std::set<int> random;
  for (std::size_t i = 0; i < 13; ++i) {
    const nlohmann::json &on = result["jitgemm"][i], &off = result["jitgemm"][13 + i];
    CHECK(on["2 tiles"] == true);
    CHECK(off["2 tiles"] == false);
    CHECK(on["sm"] == off["sm"]);
    CHECK(on["disc"] <= 0.25);
    CHECK(on["jitgemm_ms"].is_null());
    if (i >= 3) random.insert(int(on["sm"]));
  }
  CHECK(result["jitgemm"][0]["sm"] == 13);
  CHECK(result["jitgemm"][1]["sm"] == 26);
  CHECK(result["jitgemm"][2]["sm"] == 4);
  CHECK(random.size() == 10);
  CHECK(std::all_of(random.begin(), random.end(), [](int grid) { return grid % 2 == 0 && grid >= 2 && grid < 26; }));
}

TEST_CASE("A manifest of Triton kernels that cannot be right is one clear error", "[seeds]") {
  NEEDS_COMMAND();
  const Seed seed;
  const auto run = [&seed] { return seed("squares --type f16 --sizes 16 --triton-manifest manifest.json"); };
  seed.write("a.cubin", "\177ELF");
  seed.write("manifest.json", manifest);
  const auto good = run();
  INFO(good.out << good.err);
  CHECK(good.status == 0);
  const std::vector<std::pair<std::string, std::string>> bad{
      {"", "no manifest of Triton kernels"},
      {"{}", "no manifest of Triton kernels"},
      {replaced(manifest, "\"format\": 1", "\"format\": 2"), "another format"},
      {replaced(manifest, "\"c_ptr\"", "\"d_ptr\""), "unknown argument \"d_ptr\""},
      {replaced(manifest, "\"i32\"", "\"i64\""), "argument M has the type i64"},
      {replaced(manifest, "\"*fp16\"", "\"i32\""), "argument c_ptr has the type i32"},
      {replaced(manifest, "\"e5m2\"", "\"e6m1\""), "type e6m1"},
      {replaced(manifest, "\"num_warps\": 8", "\"num_warps\": 0"), "cannot be launched"},
      {replaced(manifest, "a.cubin", "b.cubin"), "b.cubin is missing"},
      {replaced(manifest, kernel, ""), "lists no kernel"},
  };
  for (const auto& [text, message] : bad) {
    INFO(text);
    seed.write("manifest.json", text);
    const auto output = run();
    CHECK(output.status == 1);
    CHECK(lines_of(output.err).size() == 1);
    CHECK_THAT(output.err, ContainsSubstring(message));
    CHECK_THAT(output.err, ContainsSubstring("tools/triton_peer/compile.py"));
  }
}

}  // namespace jitgemm::test
