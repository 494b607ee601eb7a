// The jitgemm command, as its users see it: what it prints, where, and how it ends. Runs the built command on the
// emulator.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "command.hpp"
#include "core/data_types.hpp"
#include "core/enumerators.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"

namespace jitgemm::test {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("jitgemm lists the types, biases and activations that there are", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  for (const char* help : {"run --help", "bench --help"}) {
    const std::string text = jitgemm(help).out;
    CHECK_THAT(text, ContainsSubstring(input_type_names()));
    CHECK_THAT(text, ContainsSubstring("none, along_n or along_m"));
    CHECK_THAT(text, ContainsSubstring(names_of_all<Activation>()));
  }
  const std::string shape = "run -m 8 -n 8 -k 8 --device emulator ";
  CHECK_THAT(jitgemm(shape + "--type e4m3 --accumulation slow").err, ContainsSubstring("use fast or promoted"));
  CHECK_THAT(jitgemm(shape + "--type f12").err, ContainsSubstring("use " + input_type_names()));
  CHECK_THAT(jitgemm(shape + "--d f12").err, ContainsSubstring("use " + output_type_names()));
  CHECK_THAT(jitgemm(shape + "--bias along_k").err, ContainsSubstring("none, along_n or along_m"));
  CHECK_THAT(jitgemm(shape + "--activation swish").err, ContainsSubstring("use " + names_of_all<Activation>()));
}

TEST_CASE("Without a GPU and without --device, jitgemm says that it uses the emulator", "[cli]") {
  NEEDS_COMMAND();
  if (!cuda_devices().empty()) SKIP("there is a GPU");
  const Command jitgemm;
  const Output output = jitgemm("explain -m 8 -n 8 -k 8 --no-compile");
  CHECK(output.status == 0);
  CHECK_THAT(output.err, ContainsSubstring("no GPU found: running on the emulator, times mean nothing"));
  CHECK(lines_of(output.err).size() == 1);

  const Output bench = jitgemm("bench --shapes '" JITGEMM_SOURCE_DIR "/tests/corpora/large.txt'");
  CHECK(bench.status != 0);
  CHECK_THAT(bench.err, ContainsSubstring("no GPU found"));
}

TEST_CASE("What jitgemm cannot do ends in one line on stderr and a status other than 0", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  for (const char* arguments : {
           "",
           "frobnicate",
           "run --frobnicate",
           "run -m 8 --device emulator",
           "run -m 8 -n 8 -k -1 --device emulator",
           "run -m 8 -n 8 -k eight --device emulator",
           "run --problem 8x8 --device emulator",
           "run --problem 'm=8 n=8 k=8 colour=red' --device emulator",
           "run -m 8 -n 8 -k 8 --batch 1.5 --device emulator",
           "run -m 8 -n 8 -k 8 --batch -1 --device emulator",
           "run -m 8 -n 8 -k 8 --batch 2 --stride-d 0 --device emulator",
           "run -m 8 -n 8 -k 8 --type f12 --device emulator",
           "run -m 8 -n 8 -k 8 --type '' --device emulator",
           "run -m 8 -n 8 -k 8 --type f16 --b bf16 --device emulator",
           "run -m 8 -n 8 -k 8 --type f64 --d f32 --device emulator",
           "run -m 8 -n 8 -k 8 --type s8 --activation silu --device emulator",
           "run -m 8 -n 8 -k 8 --activation swish --device emulator",
           "run -m 8 -n 8 -k 8 --bias along_k --device emulator",
           "run -m 8 -n 8 -k 8 --layout xy --device emulator",
           "run -m 8 -n 8 -k 8 --config 'sm70 8x8x8' --device emulator",
           "run -m 8 -n 8 -k 8 --config 'sm80 7x7x7' --device emulator",
           "run -m 8 -n 8 -k 8 --device abacus",
           "run -m 8 -n 8 -k 8 --device compile_only --arch sm_90a",
           "explain --device emulator",
           "explain -m 8 -n 8 -k 8 --device compile_only",
           "explain -m 8 -n 8 -k 8 --arch sm_1",
           "source -m 8 -n 8 -k 8 --format sass --device emulator",
           "source -m 8 -n 8 -k 8 --format prose --device emulator",
           "warm --shapes nowhere.txt --device emulator",
           "bench --shapes nowhere.txt --device emulator",
           "bench --shapes nowhere.txt --device emulator --type f12",
           "cache",
           "cache prune --max-bytes lots",
           "cache export ''",
           "wisdom",
           "wisdom export",
           "wisdom export nowhere/out",
           "wisdom export out --arch sm_1",
           "wisdom export out --shapes nowhere.txt",
           "wisdom import nowhere",
           "wisdom merge out nowhere",
           "wisdom show nowhere",
           "wisdom diff nowhere",
           "wisdom diff nowhere nowhere",
           "wisdom diff nowhere.jsonl nowhere.jsonl",
           "wisdom cover nowhere",
           "wisdom cover nowhere.csv",
           "wisdom cover nowhere.jsonl --kernels 0",
           "warm --configs nowhere --device emulator",
           "warm --configs nowhere -m 8 -n 8 -k 8 --device emulator",
       }) {
    INFO(arguments);
    const Output output = jitgemm(arguments);
    CHECK(output.status > 0);
    CHECK(output.out.empty());
    CHECK(lines_of(output.err).size() == 1);
    CHECK_THAT(output.err, ContainsSubstring("jitgemm: error: "));
  }
}

TEST_CASE("Every jitgemm command explains itself", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  CHECK(jitgemm("--version").out == "jitgemm " JITGEMM_VERSION "\n");
  CHECK_THAT(jitgemm("--help").out, ContainsSubstring("Examples:"));
  for (const std::string command :
       {"run",      "bench",          "tune",        "explain",       "source",       "warm",        "soak",
        "devices",  "cache",          "cache ls",    "cache verify",  "cache prune",  "cache clear", "cache export",
        "wisdom",   "wisdom export",  "wisdom show", "wisdom import", "wisdom merge", "wisdom diff", "wisdom cover",
        "parallel", "parallel bench", "seed",        "seed squares",  "seed singles", "seed sweep",  "seed checks"}) {
    INFO(command);
    const Output output = jitgemm(command + " --help");
    CHECK(output.status == 0);
    CHECK(output.err.empty());
    CHECK_THAT(output.out, ContainsSubstring("Examples:\n  jitgemm "));
    int examples = 0;
    for (const std::string& line : lines_of(output.out)) {
      if (!line.starts_with("  jitgemm ")) continue;
      ++examples;
      CHECK_THAT(line + " ", ContainsSubstring("  jitgemm " + command + " "));  // its own, and nobody else's
    }
    CHECK(examples > 0);
  }
}

TEST_CASE("jitgemm explain needs no compiler", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("nvrtc"), "is no library");
  const ScopedEnvironment no_nvrtc("JITGEMM_NVRTC", jitgemm.path("nvrtc").c_str());
  const ScopedEnvironment no_host_compiler("JITGEMM_CXX", "/nowhere/c++");
  const auto check = [&](const std::string& where, const char* why) {
    const std::string arguments = "explain -m 64 -n 64 -k 64 --candidates 0 " + where;
    const Output text = jitgemm(arguments);
    INFO(text.out << text.err);
    CHECK(text.status == 0);
    CHECK_THAT(text.out, ContainsSubstring("registers       not compiled yet"));
    CHECK(lines_of(text.err).size() == 1);
    CHECK_THAT(text.err, ContainsSubstring("registers and spills are unknown: ") && ContainsSubstring(why));
    const Output json = jitgemm(arguments + " --json");
    CHECK(json.status == 0);
    CHECK(json.json()["registers"] == -1);
    CHECK(jitgemm(arguments + " --no-compile").err.empty());  // who asks for no registers hears nothing of them
    CHECK(jitgemm("warm -m 64 -n 64 -k 64 " + where).status == 1);
  };
  check("--arch sm_90a", "no NVRTC to compile kernels with");
  check("--device emulator", "JITGEMM_CXX=/nowhere/c++ is not an executable");
  {
    const ScopedEnvironment with_host_compiler("JITGEMM_CXX", nullptr);
    REQUIRE(jitgemm("warm -m 64 -n 64 -k 64 --device emulator").status == 0);
  }
  const ScopedEnvironment exact("JITGEMM_CACHE_COMPILER", "exact");  // which asks the compiler for its version
  check("--device emulator", "JITGEMM_CXX=/nowhere/c++ is not an executable");
}

TEST_CASE("jitgemm explain prints every fact of the schedule", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const std::string arguments =
      "explain -m 200 -n 130 -k 256 --device emulator --emulator-sms 3 "
      "--config 'sm80 64x64x32 group_m=4 stages=3 warps=4 schedule=stream_k grid=5'";
  const nlohmann::json json = jitgemm(arguments + " --json").json();
  CHECK(json["tiles_m"] == 4);
  CHECK(json["tiles_n"] == 3);
  CHECK(json["stream_k_tiles"] == 12);
  CHECK(json["data_parallel_tiles"] == 0);
  CHECK(json["ctas"] == 5);
  CHECK(json["k_blocks_per_tile"] == 8);
  CHECK(json["stream_k_blocks"] == 12 * 8);
  CHECK(json["source"] == "pinned");
  CHECK(json["registers"] >= 0);
  const Output text = jitgemm(arguments + " --candidates 2");
  CHECK(text.status == 0);
  for (const char* word : {"stream_k", "64 x 64 x 32", "legal configurations"})
    CHECK_THAT(text.out, ContainsSubstring(word));
}

TEST_CASE("jitgemm source prints a kernel without a GPU", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const Output output = jitgemm("source -m 512 -n 512 -k 512 --arch sm_90a");
  CHECK(output.status == 0);
  CHECK(output.err.empty());
  CHECK_THAT(output.out, ContainsSubstring("__global__") && ContainsSubstring("constexpr int BLOCK_M"));
}

TEST_CASE("jitgemm tune measures, remembers, and says what it skipped", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const Output output = jitgemm("tune" + small_product + "--tuning-budget 0.1 --json");
  INFO(output.err);
  REQUIRE(output.status == 0);
  const nlohmann::json report = output.json();
  REQUIRE(report["candidates"].size() >= 1);
  CHECK(report["candidates"][0]["measured_us"] > 0);
  const nlohmann::json plan = jitgemm("explain" + small_product + "--no-compile --json").json();
  CHECK(plan["source"] == "exact");
  CHECK(plan["config"] == report["plan"]["config"]);
}

TEST_CASE("jitgemm bench checks every arm, and goes on where a stopped run left off", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "64 64 64\n33 40 17\n");
  const std::string configs =
      " --config 'sm80 64x64x32 group_m=4 stages=3 warps=4 schedule=data_parallel'"
      " --config 'sm80 64x64x32 group_m=4 stages=3 warps=4 schedule=split_k splits=2'";
  const std::string arguments = "bench --shapes shapes.txt --device emulator --csv out.csv" + configs;
  const Output first = jitgemm(arguments + " --json out.json");
  INFO(first.err);
  REQUIRE(first.status == 0);
  const std::string csv = file_text(jitgemm.path("out.csv"));
  REQUIRE(lines_of(csv).size() == 3);
  for (std::size_t i : {1, 2}) CHECK_THAT(lines_of(csv)[i], ContainsSubstring("emulator") && ContainsSubstring(",ok"));
  const nlohmann::json json = nlohmann::json::parse(file_text(jitgemm.path("out.json")));
  CHECK(json["shapes"].size() == 2);
  CHECK(json["shapes"][0]["model"].is_null());  // no time of a CPU

  CHECK_THAT(jitgemm(arguments).err, ContainsSubstring("--resume"));
  CHECK(file_text(jitgemm.path("out.csv")) == csv);
  write_file(jitgemm.path("out.csv"), csv.substr(0, csv.size() - 20));  // stopped in the middle of a line
  CHECK(jitgemm(arguments + " --resume").status == 0);
  CHECK(file_text(jitgemm.path("out.csv")) == csv);
}

TEST_CASE("jitgemm bench takes every part of a problem but its sizes", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "32 48 64\n");
  const Output output = jitgemm(
      "bench --shapes shapes.txt --device emulator --frozen --tuned --type e5m2 --b e4m3 --d f16 --layout nt --batch 2 "
      "--stride-b 0 --alpha 0.5 --beta 1 --bias --activation silu --csv out.csv --json out.json");
  INFO(output.err);
  REQUIRE(output.status == 0);
  CHECK_THAT(output.out, ContainsSubstring("a=e5m2 b=e4m3 d=f16"));
  const nlohmann::json shape = nlohmann::json::parse(file_text(jitgemm.path("out.json")))["shapes"][0];
  CHECK(shape["check"] == "ok");
  CHECK_THAT(shape["absent"].get<std::string>(), ContainsSubstring("tuned: the database has nothing"));
  CHECK(shape["problem"] ==
        "m=32 n=48 k=64 a=e5m2 b=e4m3 d=f16 layout_b=column_major batch=2 stride_b=0 alpha=0.5 beta=1 bias=along_n "
        "activation=silu");
  CHECK_THAT(file_text(jitgemm.path("out.csv")), ContainsSubstring("batch=2 stride_b=0"));
}

TEST_CASE("jitgemm devices lists the emulator", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const nlohmann::json devices = jitgemm("devices --json").json();
  CHECK(devices.size() == cuda_devices().size() + 1);
  CHECK(devices.back()["emulated"] == true);
}

}  // namespace jitgemm::test
