// Texts of problems and configurations by way of C: which go into a buffer, and back.
#include <cstddef>
#include <cstdint>
#include <string>

#include "c_structs.hpp"
#include "catch.hpp"
#include "core/enumerators.hpp"
#include "core/problem.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("What no text says is not written as one", "[c][hostile]") {
  std::size_t needed = 0;
  jitgemm_problem problem = new_problem();
  problem.d.type = jitgemm_data_type(99);
  CHECK_THAT(refused(JITGEMM_STATUS_INVALID_PROBLEM, jitgemm_problem_to_string(&problem, nullptr, 0, &needed)),
             ContainsSubstring("unknown"));
  jitgemm_config config = new_config();
  config.schedule = jitgemm_schedule(99);
  CHECK_THAT(refused(JITGEMM_STATUS_INVALID_CONFIG, jitgemm_config_to_string(&config, nullptr, 0, &needed)),
             ContainsSubstring("unknown"));
  CHECK(needed == 0);
}

TEST_CASE("A text is copied whole with its NUL, or not at all", "[c]") {
  const jitgemm_config config = new_config();
  const std::string whole = to_string(KernelConfig{});
  std::size_t needed = 0;
  REQUIRE(jitgemm_config_to_string(&config, nullptr, 0, &needed) == JITGEMM_STATUS_SUCCESS);
  CHECK(needed == whole.size() + 1);
  std::string buffer(200, '#');
  REQUIRE(jitgemm_config_to_string(&config, buffer.data(), needed, nullptr) == JITGEMM_STATUS_SUCCESS);
  CHECK(buffer.substr(0, needed) == whole + '\0');
  CHECK(buffer.substr(needed) == std::string(200 - needed, '#'));
  for (const std::size_t capacity : {std::size_t(0), std::size_t(1), needed - 1}) {
    buffer.assign(200, '#');
    std::size_t told = 0;
    const std::string message =
        refused(JITGEMM_STATUS_BUFFER_TOO_SMALL, jitgemm_config_to_string(&config, buffer.data(), capacity, &told));
    CHECK_THAT(message, ContainsSubstring(std::to_string(needed)));
    CHECK(told == needed);
    CHECK(buffer == std::string(200, '#'));
  }
  CHECK(jitgemm_config_to_string(&config, buffer.data(), SIZE_MAX, nullptr) == JITGEMM_STATUS_SUCCESS);
  CHECK_THAT(invalid_argument(jitgemm_config_to_string(&config, nullptr, 10, &needed)), ContainsSubstring("buffer is"));
  CHECK_THAT(invalid_argument(jitgemm_config_to_string(&config, nullptr, 0, nullptr)), ContainsSubstring("both NULL"));
}

TEST_CASE("Problems and configurations go into texts and back by way of C", "[c]") {
  for (const char* line :
       {"m=1 n=2 k=3 a=f16 b=f16 d=f16",
        "m=64 n=96 k=128 a=e4m3 b=e5m2 d=bf16 layout_b=column_major batch=3 alpha=0.5 beta=nan bias=along_m "
        "activation=leaky_relu slope=0.25 accumulation=promoted align_a=4"}) {
    jitgemm_problem problem = new_problem();
    REQUIRE(jitgemm_problem_parse(line, &problem) == JITGEMM_STATUS_SUCCESS);
    CHECK(text(problem) == line);
    CHECK(text(problem) == to_string(parse_problem(line)));
  }
  for (const char* line : {"sm80 32x32x64 group_m=0 stages=2 warps=2 schedule=data_parallel"}) {
    jitgemm_config config = new_config();
    REQUIRE(jitgemm_config_parse(line, &config) == JITGEMM_STATUS_SUCCESS);
    CHECK(text(config) == line);
  }
  jitgemm_problem problem = new_problem();
  problem.m = 7;
  const jitgemm_problem before = problem;
  CHECK_THAT(refused(JITGEMM_STATUS_INVALID_PROBLEM, jitgemm_problem_parse("m=1 shape=round", &problem)),
             ContainsSubstring("shape"));
  CHECK_THAT(refused(JITGEMM_STATUS_INVALID_PROBLEM, jitgemm_problem_set_field(&problem, "shape", "round")),
             ContainsSubstring("shape"));
  CHECK_THAT(refused(JITGEMM_STATUS_INVALID_PROBLEM, jitgemm_problem_set_field(&problem, "m", "many")),
             ContainsSubstring("many"));
  CHECK(struct_bytes(problem) == struct_bytes(before));
  jitgemm_config config = new_config();
  CHECK_THAT(refused(JITGEMM_STATUS_INVALID_CONFIG, jitgemm_config_parse("sm80 32x32x64 colour=red", &config)),
             ContainsSubstring("colour"));
  CHECK(text(config) == to_string(KernelConfig{}));
}
