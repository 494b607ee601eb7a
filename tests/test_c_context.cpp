// A Context's options, its workspace and its counters by way of C, and the devices that there are.
#include <cstddef>
#include <cstdint>

#include "c_fixture.hpp"
#include "catch.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

TEST_CASE("Options in C are the Context's, and devices are listed", "[c]") {
  CFixture f;
  std::size_t count = 0;
  REQUIRE(jitgemm_cuda_device_count(&count) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(count == cuda_devices().size());
  auto device = made_by<jitgemm_device>(jitgemm_device_init);
  REQUIRE(jitgemm_cuda_device(count - 1, &device) == JITGEMM_STATUS_SUCCESS);
  CHECK(device.architecture == cuda_devices().back().architecture);
  CHECK(jitgemm_cuda_device(count, &device) == JITGEMM_STATUS_INVALID_ARGUMENT);
  CHECK(jitgemm_cuda_device(SIZE_MAX, &device) == JITGEMM_STATUS_INVALID_ARGUMENT);

  jitgemm_options options = f.options;
  options.device = JITGEMM_DEVICE_COMPILE_ONLY;
  options.cuda_device = 1;
  options.architecture = "sm_89";
  options.tuning = JITGEMM_TUNING_CACHED;
  options.tuning_budget_seconds = 2, options.tuning_total_budget_seconds = 3;
  options.constraints.batch_invariant = 4, options.constraints.workspace_bytes = 5, options.constraints.sms = 6;
  options.workspace_bound_bytes = 7;
  options.bucket_m = 8, options.dependent_launch = 0, options.compile_in_background = 9;
  options.emulator_seed = 10, options.emulator_sm_count = 11, options.at_hand_within = 1.5;
  const ContextOptions same = c::options_of(&options);
  CHECK(same.device == Device::compile_only);
  CHECK(same.cuda_device == 1);
  CHECK(same.architecture == "sm_89");
  CHECK(same.tuning == Tuning::cached);
  CHECK((same.tuning_budget_seconds == 2 && same.tuning_total_budget_seconds == 3));
  CHECK(same.constraints == Constraints{.batch_invariant = true, .workspace_bytes = 5, .sms = 6});
  CHECK(same.workspace_bound_bytes == 7);
  CHECK((same.bucket_m && !same.dependent_launch && same.compile_in_background));
  CHECK(same.cache_dir == f.options.cache_dir);
  CHECK((same.emulator_seed == 10 && same.emulator_sm_count == 11 && same.at_hand_within == 1.5));
  CHECK(c::to_c(same).at_hand_within == 1.5);
  CHECK((!same.fallback && !same.progress));
  const jitgemm_options back = c::to_c(same);
  CHECK((back.cuda_device == 1 && back.tuning == JITGEMM_TUNING_CACHED && back.workspace_bound_bytes == 7));
  CHECK((back.constraints.batch_invariant == 1 && back.constraints.workspace_bytes == 5 && back.constraints.sms == 6));
  CHECK((back.bucket_m == 1 && back.dependent_launch == 0 && back.compile_in_background == 1));
  CHECK((back.tuning_budget_seconds == 2 && back.tuning_total_budget_seconds == 3 && back.emulator_seed == 10));
  options = made_by<jitgemm_options>(jitgemm_options_init);
  CHECK_FALSE(c::options_of(&options).tuning);
  CHECK_FALSE(c::options_of(&options).cache_dir);
}

TEST_CASE("workspace_size, trim and counters by way of C", "[c]") {
  CFixture f;
  REQUIRE(f.begin() == JITGEMM_STATUS_SUCCESS);
  const jitgemm_config config = split_config();
  std::size_t bytes = 0, chosen = 99;
  REQUIRE(jitgemm_workspace_size(f.context, &f.problem, &config, &bytes) == JITGEMM_STATUS_SUCCESS);
  CHECK(bytes > 0);
  REQUIRE(jitgemm_workspace_size(f.context, &f.problem, nullptr, &chosen) == JITGEMM_STATUS_SUCCESS);
  CHECK(chosen != 99);
  REQUIRE(f.gemm(&config) == JITGEMM_STATUS_SUCCESS);
  auto counters = made_by<jitgemm_counters>(jitgemm_counters_init);
  REQUIRE(jitgemm_get_counters(f.context, &counters) == JITGEMM_STATUS_SUCCESS);
  CHECK(counters.launches == 1);
  CHECK(counters.compiles == 1);
  CHECK(counters.workspace_bytes >= bytes);
  REQUIRE(jitgemm_trim(f.context) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_get_counters(f.context, &counters) == JITGEMM_STATUS_SUCCESS);
  CHECK(counters.workspace_bytes == 0);
}
