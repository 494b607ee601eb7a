// The structs of C: their defaults, their fields there and back, and those of older and newer programs.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "c/values.hpp"
#include "c_structs.hpp"
#include "catch.hpp"
#include "core/enumerators.hpp"
#include "core/problem.hpp"
#include "core/problem_fields.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace jitgemm::c {

/// As a struct looks that had one field, and got another.
struct Grown {
  std::size_t size;
  std::int64_t first, second;
};
template <>
struct Versioned<Grown> {
  static constexpr const char* name = "grown";
  static constexpr std::array<std::size_t, 2> sizes{16, 24};
  static Grown defaults() { return {sizeof(Grown), 11, 22}; }
};

}  // namespace jitgemm::c

TEST_CASE("A struct filled in by its _init has the defaults of C++", "[c]") {
  CHECK(text(new_problem()) == to_string(Problem{}));
  CHECK(new_problem().c.type == JITGEMM_AUTOMATIC);
  CHECK(text(new_config()) == to_string(KernelConfig{}));
  const auto operands = made_by<jitgemm_operands>(jitgemm_operands_init);
  CHECK(operands.a == nullptr);
  CHECK(operands.workspace_bytes == 0);
  const auto options = made_by<jitgemm_options>(jitgemm_options_init);
  const ContextOptions defaults;
  CHECK(options.device == JITGEMM_DEVICE_CUDA);
  CHECK(options.cuda_device == -1);
  CHECK(options.tuning == JITGEMM_TUNING_DEFAULT);
  CHECK(options.tuning_budget_seconds == defaults.tuning_budget_seconds);
  CHECK(options.tuning_total_budget_seconds == defaults.tuning_total_budget_seconds);
  CHECK(options.constraints.workspace_bytes == SIZE_MAX);
  CHECK(options.workspace_bound_bytes == defaults.workspace_bound_bytes);
  CHECK(options.dependent_launch == 1);
  CHECK(options.emulator_sm_count == defaults.emulator_sm_count);
  CHECK(options.fallback == nullptr);
  CHECK(options.progress == nullptr);
}

TEST_CASE("A problem's fields are where their names say, and go there and back", "[c]") {
  jitgemm_problem problem = new_problem();
  problem.m = 1, problem.n = 2, problem.k = 3, problem.batch = 4;
  problem.a = {JITGEMM_E4M3, JITGEMM_COLUMN_MAJOR, 11, 12, 1, JITGEMM_SCALING_VECTOR, 0, 0, {}};
  problem.b = {JITGEMM_E5M2, JITGEMM_COLUMN_MAJOR, 21, 22, 2, 0, JITGEMM_BATCH_MODE_POINTERS, 0, {}};
  problem.c = {JITGEMM_BF16, JITGEMM_ROW_MAJOR, 31, 32, 4, 0, 0, 0, {}};
  problem.d = {JITGEMM_F32, JITGEMM_ROW_MAJOR, 41, 42, 8, 0, 0, 0, {}};
  problem.alpha = 0.5, problem.beta = 0.25;
  problem.epilogue.bias = JITGEMM_BIAS_ALONG_M;
  problem.epilogue.activation = JITGEMM_LEAKY_RELU;
  problem.epilogue.slope = 0.125;
  problem.accumulation = JITGEMM_ACCUMULATION_PROMOTED;
  problem.grouping = JITGEMM_GROUPING_COUNTS;
  problem.expected_m = 7;
  const Problem same = c::problem_of(&problem);
  CHECK(same.m == 1);
  CHECK(same.n == 2);
  CHECK(same.k == 3);
  CHECK(same.batch == 4);
  CHECK(same.a.type == e4m3);
  CHECK(same.b.type == e5m2);
  CHECK(same.c.type == bf16);
  CHECK(same.d.type == f32);
  CHECK(same.a.layout == Layout::column_major);
  CHECK(same.b.layout == Layout::column_major);
  CHECK(same.c.layout == Layout::row_major);
  CHECK(same.a.scaling == Scaling::vector);
  CHECK(same.b.scaling == Scaling::value);
  CHECK(same.a.batch_mode == BatchMode::strided);
  CHECK(same.b.batch_mode == BatchMode::pointers);
  const Matrix* const matrices[]{&same.a, &same.b, &same.c, &same.d};
  for (int i = 0; i < 4; ++i) {
    CHECK(matrices[i]->ld == 10 * i + 11);
    CHECK(matrices[i]->stride == 10 * i + 12);
    CHECK(matrices[i]->alignment == 1 << i);
  }
  CHECK(same.alpha == 0.5);
  CHECK(same.beta == 0.25);
  CHECK(same.epilogue.bias == Bias::along_m);
  CHECK(same.epilogue.activation == Activation::leaky_relu);
  CHECK(same.epilogue.slope == 0.125);
  CHECK(same.accumulation == Accumulation::promoted);
  CHECK(same.grouping == Grouping::counts);
  CHECK(same.expected_m == 7);
  const jitgemm_problem back = c::to_c(same);
  CHECK(struct_bytes(back) == struct_bytes(problem));

  // And each field of its own: what set_field() changes is no longer the default.
  for_each_field([](const ProblemField& field, auto member) {
    jitgemm_problem changed = new_problem();
    const std::string name(field.name);
    const char* value = "3";
    if (name == "a" || name == "b" || name == "c" || name == "d") value = "f64";
    if (name.starts_with("layout")) value = "column_major";
    if (name.starts_with("align")) value = "8";
    if (name.starts_with("scaling")) value = "vector";
    if (name == "bias") value = "along_n";
    if (name == "activation") value = "silu";
    if (name == "accumulation") value = "promoted";
    if (name == "grouping") value = "offsets";
    if (name.starts_with("batch_mode")) value = "pointers";
    INFO(name);
    REQUIRE(jitgemm_problem_set_field(&changed, name.c_str(), value) == JITGEMM_STATUS_SUCCESS);
    const Problem set = c::problem_of(&changed), defaults;
    CHECK(member(set) != member(defaults));
    int different = 0;
    for_each_field([&](const ProblemField&, auto any) { different += any(set) != any(defaults); });
    CHECK(different == 1);
  });
}

TEST_CASE("A configuration's and a call's fields go there and back", "[c]") {
  jitgemm_config config = new_config();
  config.main_loop = JITGEMM_MAIN_LOOP_SM90;
  config.block_m = 64, config.block_n = 192, config.block_k = 48;
  config.group_m = 5, config.stages = 6, config.warps = 7;
  config.cluster_m = 2, config.cluster_n = 3, config.cluster_k = 4;
  config.ping_pong = config.swap_ab = config.pack_a = config.pack_b = config.cluster_at_launch = 1;
  config.schedule = JITGEMM_SPLIT_K;
  config.splits = 8, config.grid = 9;
  const KernelConfig same{.main_loop = MainLoop(JITGEMM_MAIN_LOOP_SM90),
                          .block_m = 64,
                          .block_n = 192,
                          .block_k = 48,
                          .group_m = 5,
                          .stages = 6,
                          .warps = 7,
                          .cluster_m = 2,
                          .cluster_n = 3,
                          .cluster_k = 4,
                          .ping_pong = true,
                          .swap_ab = true,
                          .pack_a = true,
                          .pack_b = true,
                          .schedule = Schedule::split_k,
                          .splits = 8,
                          .grid = 9,
                          .cluster_at_launch = true};
  CHECK(c::config_of(&config) == same);
  const jitgemm_config back = c::to_c(same);
  CHECK(struct_bytes(back) == struct_bytes(config));
  for (auto flag : {&jitgemm_config::ping_pong, &jitgemm_config::swap_ab, &jitgemm_config::pack_a,
                    &jitgemm_config::pack_b, &jitgemm_config::cluster_at_launch}) {
    jitgemm_config one = new_config();
    one.*flag = -5;  // anything but 0 is yes
    const KernelConfig set = c::config_of(&one);
    CHECK(set.ping_pong + set.swap_ab + set.pack_a + set.pack_b + set.cluster_at_launch == 1);
    CHECK(c::to_c(set).*flag == 1);
  }

  char memory[10];
  float scales[3];
  jitgemm_operands operands = made_by<jitgemm_operands>(jitgemm_operands_init);
  operands.a = memory, operands.b = memory + 1, operands.c = memory + 2, operands.d = memory + 3;
  operands.bias = memory + 4;
  operands.scale_a = scales, operands.scale_b = scales + 1, operands.scale_d = scales + 2;
  operands.workspace = memory + 5, operands.workspace_bytes = 99;
  const Operands call = c::operands_of(&operands);
  CHECK((call.a == memory && call.b == memory + 1 && call.c == memory + 2 && call.d == memory + 3));
  CHECK((call.bias == memory + 4 && call.workspace == memory + 5 && call.workspace_bytes == 99));
  CHECK((call.scale_a == scales && call.scale_b == scales + 1 && call.scale_d == scales + 2));
  const jitgemm_operands again = c::to_c(call);
  CHECK(struct_bytes(again) == struct_bytes(operands));
}

TEST_CASE("Facts of a plan, a device, counters and a candidate are in the fields of their names", "[c]") {
  Plan plan;
  plan.source = PlanSource::nearest;
  plan.measured_us = 1, plan.spread = 2, plan.expected_regret = 3;
  plan.runners_up.resize(4);
  plan.constraints = {true, 5, 6};
  plan.tiles_m = 7, plan.tiles_n = 8, plan.stream_k_tiles = 9, plan.data_parallel_tiles = 10, plan.ctas = 11;
  plan.k_blocks_per_tile = 12, plan.stream_k_blocks = 13, plan.workspace_bytes = 14, plan.smem_bytes = 15;
  plan.packed_bytes = 16, plan.threads = 17, plan.registers = 18, plan.spill_bytes = 19;
  const jitgemm_plan_info info = c::info_to_c(plan);
  CHECK(info.source == JITGEMM_CHOICE_NEAREST);
  CHECK((info.measured_us == 1 && info.spread == 2 && info.expected_regret == 3 && info.runner_up_count == 4));
  CHECK((info.constraints.batch_invariant == 1 && info.constraints.workspace_bytes == 5 && info.constraints.sms == 6));
  CHECK((info.tiles_m == 7 && info.tiles_n == 8 && info.stream_k_tiles == 9 && info.data_parallel_tiles == 10));
  CHECK((info.ctas == 11 && info.k_blocks_per_tile == 12 && info.stream_k_blocks == 13));
  CHECK((info.workspace_bytes == 14 && info.smem_bytes == 15 && info.packed_bytes == 16 && info.threads == 17));
  CHECK((info.registers == 18 && info.spill_bytes == 19));

  const jitgemm_predicted_time time = c::to_c(PredictedTime{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK((time.us == 1 && time.launch_us == 2 && time.packing_us == 3 && time.main_loop_us == 4));
  CHECK((time.epilogue_us == 5 && time.fixup_us == 6 && time.memory_us == 7 && time.power_us == 8));
  const jitgemm_counters counters = c::to_c(Counters{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK((counters.launches == 1 && counters.compiles == 2 && counters.disk_hits == 3 && counters.memory_hits == 4));
  CHECK((counters.rebuilt == 5 && counters.tuned == 6 && counters.stopgaps == 7 && counters.unkept == 8));
  CHECK((counters.workspace_bytes == 9 && counters.graph_workspace_bytes == 10));
  const jitgemm_tuned_candidate candidate = c::to_c(TunedCandidate{{}, 1, 2, 3, ""});
  CHECK((candidate.predicted_us == 1 && candidate.measured_us == 2 && candidate.spread == 3));

  const jitgemm_device device = c::to_c(DeviceDescription{"A GPU", "sm_90a", 1, 2, 3, 4, true});
  CHECK(device.name == std::string("A GPU"));
  CHECK(device.architecture == std::string("sm_90a"));
  CHECK((device.sm_count == 1 && device.smem_bytes_per_block == 2 && device.l2_bytes == 3 && device.memory_bytes == 4));
  CHECK(device.emulated == 1);
  CHECK(std::strlen(c::to_c(DeviceDescription{std::string(1000, 'x'), "", 0, 0, 0, 0, false}).name) ==
        sizeof device.name - 1);
}

TEST_CASE("A struct of an older program is read and written up to its end", "[c]") {
  struct {
    std::size_t size;
    std::int64_t first;
    std::int64_t not_part_of_it;
  } older{.size = 16, .first = 1, .not_part_of_it = 2};
  auto* const seen = reinterpret_cast<c::Grown*>(&older);
  const c::Grown read = c::read(seen);
  CHECK(read.first == 1);
  CHECK(read.second == 22);  // the default
  c::required(seen).put({sizeof(c::Grown), 3, 4});
  CHECK(older.size == 16);
  CHECK(older.first == 3);
  CHECK(older.not_part_of_it == 2);
  older.size = 0;
  c::init(seen, 16);
  CHECK(older.size == 16);
  CHECK(older.first == 11);
  CHECK(older.not_part_of_it == 2);
}

TEST_CASE("What an older program's problem has no room for is refused, and nothing written", "[c]") {
  constexpr std::size_t first_version = c::Versioned<jitgemm_problem>::sizes.front();
  jitgemm_problem memory;
  jitgemm_problem* const older = &memory;
  REQUIRE(jitgemm_problem_init_sized(older, first_version) == JITGEMM_STATUS_SUCCESS);
  REQUIRE(jitgemm_problem_parse("m=5 n=6 k=7", older) == JITGEMM_STATUS_SUCCESS);
  CHECK(older->m == 5);
  REQUIRE(jitgemm_problem_set_field(older, "expected_m", "0") == JITGEMM_STATUS_SUCCESS);
  CHECK_THAT(invalid_argument(jitgemm_problem_set_field(older, "expected_m", "3")),
             ContainsSubstring("jitgemm_problem of this program has 400 bytes") &&
                 ContainsSubstring("compile the program with the header of jitgemm"));
  CHECK_THAT(invalid_argument(jitgemm_problem_parse("m=1 n=2 k=3 batch=2 grouping=offsets expected_m=3", older)),
             ContainsSubstring("too few"));
  CHECK(older->m == 5);
}

TEST_CASE("A struct of a newer program is taken if it leaves alone what this library does not know", "[c]") {
  struct Newer {
    jitgemm_problem known;
    std::int64_t unknown[3];
  } newer;
  std::memset(&newer, 0xff, sizeof newer);
  REQUIRE(jitgemm_problem_init_sized(&newer.known, sizeof newer) == JITGEMM_STATUS_SUCCESS);
  CHECK(newer.known.size == sizeof newer);
  CHECK(std::all_of(newer.unknown, newer.unknown + 3, [](std::int64_t word) { return word == 0; }));
  newer.known.m = newer.known.n = newer.known.k = 16;
  CHECK_THAT(text(newer.known), ContainsSubstring("m=16"));
  newer.unknown[2] = std::int64_t(1) << 56;
  std::size_t needed = 77;
  const std::string message = invalid_argument(jitgemm_problem_to_string(&newer.known, nullptr, 0, &needed));
  CHECK_THAT(message, ContainsSubstring("jitgemm_problem") && ContainsSubstring("newer library"));
  CHECK(needed == 77);
  REQUIRE(jitgemm_problem_parse("m=1 n=2 k=3", &newer.known) == JITGEMM_STATUS_SUCCESS);  // written anew
  CHECK(newer.known.size == sizeof newer);
  CHECK(newer.unknown[2] == 0);
  CHECK(newer.known.m == 1);
}
