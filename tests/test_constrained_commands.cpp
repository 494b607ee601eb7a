// --batch-invariant, --workspace-limit and --sm-limit of the jitgemm command.
#include <algorithm>

#include "catch.hpp"
#include "command.hpp"
#include "jitgemm/jitgemm.hpp"
#include "tune/tuning_db.hpp"

namespace jitgemm::test {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("jitgemm explain says what a choice was made under", "[cli][constraints]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  const std::string explain = "explain -m 128 -n 256 -k 8192 --arch sm_90a --no-compile ";
  const nlohmann::json free = jitgemm(explain + "--json").json();
  CHECK(free["constraints"] == "");
  CHECK(parse_kernel_config(std::string(free["config"])).cluster_k > 1);

  const nlohmann::json json = jitgemm(explain + "--json --batch-invariant --workspace-limit 64K --sm-limit 9").json();
  CHECK(json["constraints"] == "batch_invariant workspace_bytes=65536 sms=9");
  CHECK(parse_kernel_config(std::string(json["config"])).cluster_k == 1);
  CHECK(json["ctas"] <= 9);
  CHECK(json["workspace_bytes"] == 0);
  CHECK_THAT(jitgemm(explain + "--sm-limit 9").out, ContainsSubstring("constraints     sms=9\n"));

  // Bytes, with and without a suffix.
  for (const auto& [given, bytes] : {std::pair("0", "0"), {"1000", "1000"}, {"8M", "8388608"}, {"1G", "1073741824"}}) {
    CHECK(jitgemm(explain + "--json --workspace-limit " + given).json()["constraints"] ==
          std::string("workspace_bytes=") + bytes);
  }
  for (const char* wrong : {"lots", "-1", "1.5M", "99999999999999999999", "99999999999999999999M"}) {
    const Output output = jitgemm(explain + "--workspace-limit " + wrong);
    CHECK(output.status != 0);
    CHECK_THAT(output.err, ContainsSubstring("--workspace-limit"));
  }
}

TEST_CASE("Every command that chooses takes constraints", "[cli][constraints]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "32 32 64\n");
  for (const char* command :
       {"run -m 32 -n 32 -k 64", "tune -m 32 -n 32 -k 64", "explain -m 32 -n 32 -k 64", "source -m 32 -n 32 -k 64",
        "warm -m 32 -n 32 -k 64", "tune --shapes shapes.txt", "bench --no-peers --shapes shapes.txt"}) {
    const Output output = jitgemm(std::string(command) + " --device emulator --sm-limit 99");
    INFO(command << "\n" << output.err);
    CHECK(output.status != 0);
    CHECK_THAT(output.err, ContainsSubstring("sms=99"));
  }
  const Output output = jitgemm(
      "run -m 70 -n 66 -k 65 --device emulator --tuning off --batch-invariant --workspace-limit 0 --sm-limit 1 --json");
  INFO(output.err);
  REQUIRE(output.status == 0);
  CHECK(output.json()["check"]["passed"] == true);
  CHECK(output.json()["plan"]["ctas"] == 1);
}

TEST_CASE("jitgemm tune tunes under constraints anew, in workers, too", "[tune_command][constraints]") {
  NEEDS_COMMAND();
  const Command jitgemm;
  write_file(jitgemm.path("shapes.txt"), "32 32 512\n32 32 520\n");
  const std::string tune = "tune --shapes shapes.txt --type f64 --device emulator --arch sm_80 --tuning-budget 0.02 ";
  const auto tuned = [&](const std::string& options) {
    return jitgemm(tune + "--dry-run --json " + options).json()["tuned"].get<int>();
  };
  const auto records = [&](const Constraints& constraints) {
    const auto all = TuningDb(jitgemm.path("cache") / "tuning.jsonl").records();
    return std::count_if(all.begin(), all.end(),
                         [&](const TuningRecord& record) { return record.constraints == constraints; });
  };
  REQUIRE(jitgemm(tune + "--workspace-limit 0").status == 0);
  CHECK(records({.workspace_bytes = 0}) == 2);
  CHECK(tuned("--workspace-limit 0") == 2);
  CHECK(tuned("") == 0);
  CHECK(tuned("--batch-invariant") == 0);

  const Output output = jitgemm(tune + "--batch-invariant --workspace-limit 1000 --sm-limit 3 --gpus 2");
  INFO(output.err);
  REQUIRE(output.status == 0);
  CHECK(records({.batch_invariant = true, .workspace_bytes = 1000, .sms = 3}) == 2);
  CHECK(records({}) == 0);
}

}  // namespace jitgemm::test
