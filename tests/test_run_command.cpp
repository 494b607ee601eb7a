// `jitgemm run`: every part of a problem by its options, and that what it computed is right. Runs the built command on
// the emulator.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "command.hpp"

namespace jitgemm::test {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("jitgemm run checks what it computed and says where the kernel came from", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const Output first = jitgemm("run --tuning off" + small_product);
  INFO(first.err);
  REQUIRE(first.status == 0);
  CHECK(first.err.empty());
  CHECK_THAT(first.out, ContainsSubstring("compiled in"));
  CHECK_THAT(first.out, ContainsSubstring("right: all elements"));
  CHECK_THAT(first.out, !ContainsSubstring("TFLOP/s"));  // no speed of a CPU

  const Output cached = jitgemm("run --tuning off" + small_product);
  REQUIRE(cached.status == 0);
  CHECK_THAT(cached.out, ContainsSubstring("from the disk cache"));
}

TEST_CASE("jitgemm run measures a problem once, among kernels at hand, too", "[cli]") {
  NEEDS_COMMAND();
  for (const char* among : {"", " --at-hand-within 1000"}) {
    const Command jitgemm;
    REQUIRE(jitgemm("run --tuning off" + small_product).status == 0);
    const std::string tuned = "run --tuning on --tuning-budget 0.02" + small_product + among;
    CAPTURE(tuned);
    CHECK_THAT(jitgemm(tuned).out, ContainsSubstring("measured"));
    CHECK_THAT(jitgemm(tuned).out, !ContainsSubstring("tuning "));
  }
}

TEST_CASE("jitgemm run takes every part of a problem, and prints JSON alone to stdout", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const Output output = jitgemm(
      "run --problem 40x48x33 --type bf16 --d f32 --layout tn --lda 41 --ldd 50 --alpha -0.5 --beta 2 --bias "
      "--activation leaky_relu --slope 0.25 --device emulator --json "
      "--config 'sm80 64x64x32 group_m=0 stages=3 warps=4 schedule=split_k splits=2'");
  INFO(output.err);
  REQUIRE(output.status == 0);
  const nlohmann::json json = output.json();
  CHECK(json["check"]["passed"] == true);
  CHECK(json["check"]["elements"] == 40 * 48);
  CHECK(json["plan"]["config"] == "sm80 64x64x32 group_m=0 stages=3 warps=4 schedule=split_k splits=2");
  const std::string problem = json["plan"]["problem"];
  for (const char* part : {"a=bf16", "d=f32", "layout_a=column_major", "lda=41", "ldd=50", "alpha=-0.5", "beta=2",
                           "bias=along_n", "activation=leaky_relu", "slope=0.25"}) {
    CHECK_THAT(problem, ContainsSubstring(part));
  }
  CHECK_FALSE(json.contains("time"));  // no speed of a CPU
}

TEST_CASE("jitgemm run computes every type", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  for (const char* types :
       {"f16", "bf16 --d f32", "e4m3", "e5m2 --d e5m2", "e5m2 --b e4m3 --d f16", "tf32", "f32", "f64", "s8"}) {
    INFO(types);
    const Output output =
        jitgemm(std::string("run -m 20 -n 24 -k 48 --layout nt --tuning off --device emulator --json --type ") + types);
    INFO(output.err);
    REQUIRE(output.status == 0);
    CHECK(output.json()["check"]["passed"] == true);
    CHECK(output.json()["check"]["whole"] == true);
  }
}

TEST_CASE("jitgemm run promotes where it is asked to", "[cli]") {
  NEEDS_COMMAND();
  const Output output = Command()(
      "run -m 40 -n 48 -k 320 --type e4m3 --layout nt --accumulation promoted "
      "--device emulator --json --config 'sm90 64x64x128 group_m=0 stages=3 warps=4 schedule=data_parallel'");
  INFO(output.err);
  REQUIRE(output.status == 0);
  CHECK(output.json()["check"]["passed"] == true);
  CHECK_THAT(std::string(output.json()["plan"]["problem"]), ContainsSubstring("accumulation=promoted"));
}

TEST_CASE("jitgemm run multiplies groups, however rows come to them", "[cli][groups]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const std::string groups = "run -m 90 -n 24 -k 48 --layout nt --device emulator ";
  for (const char* how :
       {"--groups 7", "--groups 7 --distribution zipf", "--groups 7 --distribution equal --expected-m 3", "--groups 0",
        "--batch 3 --grouping counts --expected-m 9 --beta 0.5 --bias",
        "--batch 5 --grouping along_k --distribution zipf --layout-a t --layout-b n --beta 0.5",
        "--groups 4 --type e4m3 --scaling-a block_1x128 --scaling-b block_128x128",
        "--batch 3 --grouping counts --type e4m3 --scaling block_1x128",
        "--batch 3 --type e4m3 --scaling-a block_1x128 --scaling-b block_128x128"}) {
    INFO(how);
    const Output output = jitgemm(groups + how + " --json");
    INFO(output.err);
    REQUIRE(output.status == 0);
    CHECK(output.json()["check"]["passed"] == true);
    CHECK((output.json()["check"]["elements"] > 0) == (std::string(how) != "--groups 0"));
  }
  CHECK_THAT(jitgemm(groups + "--groups 7 --distribution wild").err, ContainsSubstring("use equal, uniform or zipf"));
  CHECK_THAT(jitgemm(groups + "--distribution zipf").err, ContainsSubstring("add --groups or --grouping"));
  CHECK_THAT(jitgemm(groups + "--expected-m 3").err, ContainsSubstring("expected_m is of groups"));
  CHECK_THAT(jitgemm(groups + "--grouping rows").err, ContainsSubstring("use none, offsets, counts or along_k"));
  const Output tuned = jitgemm("tune -m 60 -n 64 -k 64 --type bf16 --layout nt --groups 9 --device emulator");
  CHECK(tuned.status == 0);  // what is kept is of the problem that is measured
  CHECK(tuned.err == "");
  CHECK_THAT(tuned.out, ContainsSubstring("as for 8 groups of about 8 rows"));
}

TEST_CASE("jitgemm run scales rows and columns, and blocks of k", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const std::string shape = "run -m 40 -n 48 -k 320 --layout nt --tuning off --device emulator --json ";
  for (const auto& [options, field] : {std::pair{"--type e4m3 --scaling vector", "scaling_a=vector scaling_b=vector"},
                                       {"--type s8 --d bf16 --alpha 0.001 --scaling-b vector",
                                        "d=bf16 layout_b=column_major alpha=0.00100000005 scaling_b"},
                                       {"--type e5m2 --scaling-a block_1x128 --scaling-b block_128x128",
                                        "scaling_a=block_1x128 scaling_b=block_128x128"}}) {
    const Output output = jitgemm(shape + options);
    INFO(output.err);
    REQUIRE(output.status == 0);
    CHECK(output.json()["check"]["passed"] == true);
    CHECK_THAT(std::string(output.json()["plan"]["problem"]), ContainsSubstring(field));
  }
  CHECK_THAT(jitgemm(shape + "--type bf16 --scaling vector").err, ContainsSubstring("no kernel scales a = bf16"));
  CHECK_THAT(jitgemm(shape + "--type e4m3 --scaling rows").err, ContainsSubstring("use value, vector"));
}

TEST_CASE("jitgemm run takes batches, and a matrix for all of one", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const Output output = jitgemm(
      "run -m 20 -n 24 -k 33 --type bf16 --batch 3 --stride-a 700 --stride-b 0 --beta 0.5 --stride-c 0 --stride-d 500 "
      "--bias along_m --activation gelu_erf --tuning off --device emulator --json");
  INFO(output.err);
  REQUIRE(output.status == 0);
  const nlohmann::json json = output.json();
  CHECK(json["check"]["passed"] == true);
  CHECK(json["check"]["elements"] == 3 * 20 * 24);
  CHECK(json["plan"]["batch"] == 3);
  const std::string problem = json["plan"]["problem"];
  for (const char* part :
       {"batch=3", "stride_a=700", "stride_b=0", "stride_c=0", "stride_d=500", "bias=along_m", "activation=gelu_erf"}) {
    CHECK_THAT(problem, ContainsSubstring(part));
  }
  // What is printed gives the problem again.
  const Output again = jitgemm("explain --no-compile --device emulator --json --problem '" + problem + "'");
  REQUIRE(again.status == 0);
  CHECK(again.json()["problem"] == problem);
}

TEST_CASE("Types that are not given follow from A's", "[cli]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--type bf16", "a=bf16 b=bf16 d=bf16"},
      {"--type tf32", "a=tf32 b=tf32 d=f32"},
      {"--type f32", "a=f32 b=f32 d=f32"},
      {"--type f64", "a=f64 b=f64 d=f64"},
      {"--type e4m3", "a=e4m3 b=e4m3 d=bf16"},
      {"--type e5m2 --b e4m3", "a=e5m2 b=e4m3 d=bf16"},
      {"--type s8", "a=s8 b=s8 d=s32"},
      {"--type f16 --d f32", "a=f16 b=f16 d=f32"},
      {"--problem '8x8x8 a=s8'", "a=s8 b=s8 d=s32"},
      {"--problem '8x8x8 a=e4m3 b=e5m2'", "a=e4m3 b=e5m2 d=bf16"},
      {"--problem '8x8x8 a=bf16 b=bf16 d=f32' --type f64", "a=f64 b=f64 d=f64"},
      {"--problem '8x8x8 a=bf16 b=bf16 d=f32' --bias", "a=bf16 b=bf16 d=f32 bias=along_n"},
  };
  for (const auto& [arguments, types] : cases) {
    INFO(arguments);
    const Output output = jitgemm("explain -m 8 -n 8 -k 8 --no-compile --device emulator --json " + arguments);
    INFO(output.err);
    REQUIRE(output.status == 0);
    CHECK_THAT(std::string(output.json()["problem"]), ContainsSubstring(types));
  }
}

}  // namespace jitgemm::test
