// What C programs hold: numbers, structs of every version, texts, and what is wrong with arguments that only C can
// give.
#include <cstring>
#include <limits>

#include "c/values.hpp"
#include "c_context.hpp"
#include "catch.hpp"
#include "core/enumerators.hpp"
#include "core/error_names.hpp"
#include "core/problem.hpp"
#include "core/problem_fields.hpp"
#include "jitgemm/version.hpp"  // defines the same as jitgemm.h, or does not compile
#include "sandbox.hpp"

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

namespace {

/// The message of a call that must end so, on one line with a way out.
std::string refused(jitgemm_status expected, jitgemm_status status) {
  const std::string message = jitgemm_last_error_message();
  INFO(jitgemm_status_name(status) << ": " << message);
  CHECK(status == expected);
  CHECK(jitgemm_last_error_status() == expected);
  CHECK(message.find('\n') == std::string::npos);
  CHECK((message.find(": ") != std::string::npos || message.find("; ") != std::string::npos));
  return message;
}
std::string invalid_argument(jitgemm_status status) { return refused(JITGEMM_STATUS_INVALID_ARGUMENT, status); }

jitgemm_problem new_problem() { return made_by<jitgemm_problem>(jitgemm_problem_init); }
jitgemm_config new_config() { return made_by<jitgemm_config>(jitgemm_config_init); }

std::string text(const jitgemm_problem& problem) {
  return line_of([&](char* b, std::size_t c, std::size_t* n) { return jitgemm_problem_to_string(&problem, b, c, n); });
}
std::string text(const jitgemm_config& config) {
  return line_of([&](char* b, std::size_t c, std::size_t* n) { return jitgemm_config_to_string(&config, b, c, n); });
}

/// That the words of an enumeration are those of C++, all of them, each ending in a NUL.
template <typename Enum>
void check_names(const char* (*name)(std::int32_t), std::initializer_list<std::int32_t> all) {
  std::int32_t next = 0;
  for (const std::int32_t value : all) {
    CHECK(value == next++);
    CHECK(name(value) == std::string(to_string(Enum(value))));
    CHECK(name(value) != std::string("unknown"));
  }
  for (const std::int32_t none : {next, -1, 254, 255, 256, 256 + 1, std::numeric_limits<std::int32_t>::max(),
                                  std::numeric_limits<std::int32_t>::min()})
    CHECK(name(none) == std::string("unknown"));
}

/// That each word reads back, and what is none is refused with the words that there are.
void check_parse(const char* (*name)(std::int32_t), jitgemm_status (*parse)(const char*, std::int32_t*), int count) {
  std::string last;
  for (int value = 0; value < count; ++value) {
    std::int32_t found = -1;
    CHECK(parse(last.assign(name(value)).c_str(), &found) == JITGEMM_STATUS_SUCCESS);
    CHECK(found == value);
  }
  for (const char* word : {"", "nonsense", "unknown", "automatic", "two\nlines"}) {
    std::int32_t found = -7;
    const std::string message = invalid_argument(parse(word, &found));
    CHECK_THAT(message, ContainsSubstring(name(0)) && ContainsSubstring(last));
    CHECK(found == -7);
  }
  std::int32_t found = 0;
  CHECK_THAT(invalid_argument(parse(nullptr, &found)), ContainsSubstring("text is NULL"));
  CHECK_THAT(invalid_argument(parse(name(0), nullptr)), ContainsSubstring("is NULL"));
}

template <auto c_value, auto value>
constexpr bool same = static_cast<int>(c_value) == static_cast<int>(value);
static_assert(same<JITGEMM_F16, f16> && same<JITGEMM_BF16, bf16> && same<JITGEMM_F32, f32> && same<JITGEMM_TF32, tf32>);
static_assert(same<JITGEMM_F64, f64> && same<JITGEMM_E4M3, e4m3> && same<JITGEMM_E5M2, e5m2> && same<JITGEMM_S8, s8>);
static_assert(same<JITGEMM_S32, s32> && same<JITGEMM_AUTOMATIC, DataType::automatic>);
static_assert(same<JITGEMM_ROW_MAJOR, Layout::row_major> && same<JITGEMM_COLUMN_MAJOR, Layout::column_major>);
static_assert(same<JITGEMM_BIAS_NONE, Bias::none> && same<JITGEMM_BIAS_ALONG_N, Bias::along_n> &&
              same<JITGEMM_BIAS_ALONG_M, Bias::along_m>);
static_assert(same<JITGEMM_ACTIVATION_NONE, Activation::none> && same<JITGEMM_RELU, Activation::relu> &&
              same<JITGEMM_LEAKY_RELU, Activation::leaky_relu> && same<JITGEMM_GELU_ERF, Activation::gelu_erf> &&
              same<JITGEMM_GELU_TANH, Activation::gelu_tanh> && same<JITGEMM_SILU, Activation::silu>);
static_assert(same<JITGEMM_ACCUMULATION_FAST, Accumulation::fast> &&
              same<JITGEMM_ACCUMULATION_PROMOTED, Accumulation::promoted>);
static_assert(same<JITGEMM_MAIN_LOOP_SM80, MainLoop(0)> && same<JITGEMM_MAIN_LOOP_SM90, MainLoop(1)>);
static_assert(same<JITGEMM_DATA_PARALLEL, Schedule::data_parallel> && same<JITGEMM_PERSISTENT, Schedule::persistent> &&
              same<JITGEMM_SPLIT_K, Schedule::split_k> && same<JITGEMM_STREAM_K, Schedule::stream_k> &&
              same<JITGEMM_STREAM_K_ONE_TILE, Schedule::stream_k_one_tile> &&
              same<JITGEMM_STREAM_K_TWO_TILE, Schedule::stream_k_two_tile>);
static_assert(same<JITGEMM_CHOICE_PINNED, PlanSource::pinned> && same<JITGEMM_CHOICE_EXACT, PlanSource::exact> &&
              same<JITGEMM_CHOICE_MEASURED, PlanSource::measured> &&
              same<JITGEMM_CHOICE_NEAREST, PlanSource::nearest> && same<JITGEMM_CHOICE_MODEL, PlanSource::model> &&
              same<JITGEMM_CHOICE_FALLBACK, PlanSource::fallback> && same<JITGEMM_CHOICE_AT_HAND, PlanSource::at_hand>);
static_assert(same<JITGEMM_DEVICE_CUDA, Device::cuda> && same<JITGEMM_DEVICE_EMULATOR, Device::emulator> &&
              same<JITGEMM_DEVICE_COMPILE_ONLY, Device::compile_only>);
static_assert(same<JITGEMM_TUNING_OFF, Tuning::off> && same<JITGEMM_TUNING_CACHED, Tuning::cached> &&
              same<JITGEMM_TUNING_ON, Tuning::on>);
static_assert(JITGEMM_PACKED_STRIDE == packed_stride);

template <jitgemm_status status, ErrorCode code>
constexpr bool same_code = static_cast<int>(status) == static_cast<int>(code) + 1;
static_assert(same_code<JITGEMM_STATUS_INVALID_PROBLEM, ErrorCode::invalid_problem>);
static_assert(same_code<JITGEMM_STATUS_INVALID_OPERAND, ErrorCode::invalid_operand>);
static_assert(same_code<JITGEMM_STATUS_INVALID_CONFIG, ErrorCode::invalid_config>);
static_assert(same_code<JITGEMM_STATUS_INVALID_OPTION, ErrorCode::invalid_option>);
static_assert(same_code<JITGEMM_STATUS_NO_DEVICE, ErrorCode::no_device>);
static_assert(same_code<JITGEMM_STATUS_NO_COMPILER, ErrorCode::no_compiler>);
static_assert(same_code<JITGEMM_STATUS_COMPILE_FAILED, ErrorCode::compile_failed>);
static_assert(same_code<JITGEMM_STATUS_LOAD_FAILED, ErrorCode::load_failed>);
static_assert(same_code<JITGEMM_STATUS_LAUNCH_FAILED, ErrorCode::launch_failed>);
static_assert(same_code<JITGEMM_STATUS_OUT_OF_MEMORY, ErrorCode::out_of_memory>);
static_assert(same_code<JITGEMM_STATUS_WORKSPACE_TOO_SMALL, ErrorCode::workspace_too_small>);
static_assert(same_code<JITGEMM_STATUS_NOT_CAPTURABLE, ErrorCode::not_capturable>);
static_assert(same_code<JITGEMM_STATUS_IO, ErrorCode::io>);
static_assert(same_code<JITGEMM_STATUS_EMULATOR_FAULT, ErrorCode::emulator_fault>);
static_assert(same_code<JITGEMM_STATUS_INTERNAL, ErrorCode::internal>);
static_assert(same_code<JITGEMM_STATUS_PEER_LOST, ErrorCode::peer_lost>);
static_assert(same_code<JITGEMM_STATUS_COMMUNICATOR_FAILED, ErrorCode::communicator_failed>);

}  // namespace

TEST_CASE("The C API has the enumerators of C++, by the same numbers and words", "[c]") {
  check_names<DataType>(jitgemm_data_type_name,
                        {JITGEMM_F16, JITGEMM_BF16, JITGEMM_F32, JITGEMM_TF32, JITGEMM_F64, JITGEMM_E4M3, JITGEMM_E5M2,
                         JITGEMM_S8, JITGEMM_S32, JITGEMM_AUTOMATIC});
  check_names<Layout>(jitgemm_layout_name, {JITGEMM_ROW_MAJOR, JITGEMM_COLUMN_MAJOR});
  check_names<Bias>(jitgemm_bias_name, {JITGEMM_BIAS_NONE, JITGEMM_BIAS_ALONG_N, JITGEMM_BIAS_ALONG_M});
  check_names<Activation>(jitgemm_activation_name, {JITGEMM_ACTIVATION_NONE, JITGEMM_RELU, JITGEMM_LEAKY_RELU,
                                                    JITGEMM_GELU_ERF, JITGEMM_GELU_TANH, JITGEMM_SILU});
  check_names<Scaling>(jitgemm_scaling_name, {JITGEMM_SCALING_VALUE, JITGEMM_SCALING_VECTOR,
                                              JITGEMM_SCALING_BLOCK_1X128, JITGEMM_SCALING_BLOCK_128X128});
  check_names<Grouping>(jitgemm_grouping_name, {JITGEMM_GROUPING_NONE, JITGEMM_GROUPING_OFFSETS,
                                                JITGEMM_GROUPING_COUNTS, JITGEMM_GROUPING_ALONG_K});
  check_names<BatchMode>(jitgemm_batch_mode_name, {JITGEMM_BATCH_MODE_STRIDED, JITGEMM_BATCH_MODE_POINTERS});
  check_names<Accumulation>(jitgemm_accumulation_name, {JITGEMM_ACCUMULATION_FAST, JITGEMM_ACCUMULATION_PROMOTED});
  check_names<MainLoop>(jitgemm_main_loop_name, {JITGEMM_MAIN_LOOP_SM80, JITGEMM_MAIN_LOOP_SM90});
  check_names<Schedule>(jitgemm_schedule_name,
                        {JITGEMM_DATA_PARALLEL, JITGEMM_PERSISTENT, JITGEMM_SPLIT_K, JITGEMM_STREAM_K,
                         JITGEMM_STREAM_K_ONE_TILE, JITGEMM_STREAM_K_TWO_TILE});
  check_names<PlanSource>(jitgemm_choice_source_name,
                          {JITGEMM_CHOICE_PINNED, JITGEMM_CHOICE_EXACT, JITGEMM_CHOICE_MEASURED, JITGEMM_CHOICE_NEAREST,
                           JITGEMM_CHOICE_MODEL, JITGEMM_CHOICE_FALLBACK, JITGEMM_CHOICE_AT_HAND});
  check_parse(jitgemm_data_type_name, jitgemm_data_type_parse, JITGEMM_AUTOMATIC);
  check_parse(jitgemm_layout_name, jitgemm_layout_parse, 2);
  check_parse(jitgemm_bias_name, jitgemm_bias_parse, 3);
  check_parse(jitgemm_activation_name, jitgemm_activation_parse, 6);
  check_parse(jitgemm_scaling_name, jitgemm_scaling_parse, 4);
  check_parse(jitgemm_grouping_name, jitgemm_grouping_parse, 3);
  check_parse(jitgemm_batch_mode_name, jitgemm_batch_mode_parse, 2);
  check_parse(jitgemm_accumulation_name, jitgemm_accumulation_parse, 2);
  check_parse(jitgemm_schedule_name, jitgemm_schedule_parse, 6);
  for (int type = -1; type < 300; ++type) {
    const DataType same = type < 0 || type > 254 ? DataType(255) : DataType(type);
    CHECK(jitgemm_bits_of(type) == bits_of(same));
    CHECK(jitgemm_size_of(type) == size_of(same));
    CHECK(jitgemm_default_output(type) == int(default_output(same)));
  }
  CHECK(jitgemm_size_of(JITGEMM_F64) == 8);
  CHECK(jitgemm_version() == std::string(JITGEMM_VERSION));
}

TEST_CASE("Each ErrorCode has a jitgemm_status, by the same word", "[c]") {
  for (int code = 0; code <= int(ErrorCode::communicator_failed); ++code)
    CHECK(jitgemm_status_name(code + 1) == to_string(ErrorCode(code)));
  CHECK(to_string(ErrorCode(JITGEMM_STATUS_COMMUNICATOR_FAILED)) == "unknown");  // there are no more
  CHECK(jitgemm_status_name(JITGEMM_STATUS_SUCCESS) == std::string("success"));
  CHECK(jitgemm_status_name(JITGEMM_STATUS_INTERRUPTED) == std::string("interrupted"));
  CHECK(jitgemm_status_name(JITGEMM_STATUS_INVALID_ARGUMENT) == std::string("invalid_argument"));
  CHECK(jitgemm_status_name(JITGEMM_STATUS_BUFFER_TOO_SMALL) == std::string("buffer_too_small"));
  for (const std::int32_t none : {-1, 18, 255, 256, 257, 999, 1003, std::numeric_limits<std::int32_t>::min()})
    CHECK(jitgemm_status_name(none) == std::string("unknown"));
}

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
  config.ping_pong = config.swap_ab = config.pack_a = config.pack_b = 1;
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
                          .grid = 9};
  CHECK(c::config_of(&config) == same);
  const jitgemm_config back = c::to_c(same);
  CHECK(struct_bytes(back) == struct_bytes(config));
  for (auto flag :
       {&jitgemm_config::ping_pong, &jitgemm_config::swap_ab, &jitgemm_config::pack_a, &jitgemm_config::pack_b}) {
    jitgemm_config one = new_config();
    one.*flag = -5;  // anything but 0 is yes
    const KernelConfig set = c::config_of(&one);
    CHECK(set.ping_pong + set.swap_ab + set.pack_a + set.pack_b == 1);
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

namespace {

template <typename Struct>
void check_sizes(const char* name, jitgemm_status (*init)(Struct*, std::size_t),
                 const std::function<jitgemm_status(Struct*)>& use) {
  INFO(name);
  Struct one;
  REQUIRE(init(&one, sizeof one) == JITGEMM_STATUS_SUCCESS);
  CHECK(one.size == sizeof one);
  for (const std::size_t size : {std::size_t(0), std::size_t(1), std::size_t(8), sizeof one - 4, sizeof one - 1,
                                 sizeof one + 1, sizeof one + 5000, SIZE_MAX, std::size_t(0x7ffc12345678)}) {
    constexpr auto versions = c::Versioned<Struct>::sizes;
    if (std::find(versions.begin(), versions.end(), size) != versions.end()) continue;  // an older program's
    INFO(size);
    one.size = size;
    const Struct before = one;
    const std::string message = invalid_argument(use(&one));
    CHECK_THAT(message, ContainsSubstring(name) && ContainsSubstring(std::string(name) + "_init()") &&
                            ContainsSubstring(std::to_string(size)));
    CHECK_THAT(invalid_argument(init(&one, size)), ContainsSubstring(std::string(name) + "_init()"));
    CHECK(struct_bytes(one) == struct_bytes(before));
  }
  CHECK_THAT(invalid_argument(init(nullptr, sizeof one)), ContainsSubstring(std::string(name) + " is NULL"));
  CHECK_THAT(invalid_argument(use(nullptr)), ContainsSubstring("is NULL"));
}

ContextOptions without_device(const TemporaryDirectory& cache) {
  return {.device = Device::compile_only, .architecture = "sm_80", .cache_dir = cache.path().string()};
}

}  // namespace

TEST_CASE("A struct without its _init is one error that names it", "[c][hostile]") {
  const TemporaryDirectory cache;
  const CContext context(without_device(cache));
  const CPlan plan(context, {.m = 64, .n = 64, .k = 64}, nullptr);
  std::size_t n = 0;
  check_sizes<jitgemm_problem>("jitgemm_problem", jitgemm_problem_init_sized,
                               [&](auto* problem) { return jitgemm_problem_to_string(problem, nullptr, 0, &n); });
  check_sizes<jitgemm_problem>("jitgemm_problem", jitgemm_problem_init_sized,
                               [](auto* problem) { return jitgemm_problem_parse("m=1 n=1 k=1", problem); });
  check_sizes<jitgemm_problem>("jitgemm_problem", jitgemm_problem_init_sized,
                               [&](auto* problem) { return jitgemm_plan_get_problem(plan, problem); });
  check_sizes<jitgemm_config>("jitgemm_config", jitgemm_config_init_sized,
                              [&](auto* config) { return jitgemm_config_to_string(config, nullptr, 0, &n); });
  check_sizes<jitgemm_config>("jitgemm_config", jitgemm_config_init_sized,
                              [&](auto* config) { return jitgemm_plan_get_config(plan, config); });
  check_sizes<jitgemm_operands>("jitgemm_operands", jitgemm_operands_init_sized,
                                [&](auto* operands) { return jitgemm_plan_run(plan, operands, nullptr); });
  check_sizes<jitgemm_options>("jitgemm_options", jitgemm_options_init_sized, [](auto* options) {
    jitgemm_context* made = nullptr;
    // No options are the defaults.
    return options ? jitgemm_context_create(options, &made) : jitgemm_options_init(nullptr);
  });
  check_sizes<jitgemm_device>("jitgemm_device", jitgemm_device_init_sized,
                              [&](auto* device) { return jitgemm_get_device(context, device); });
  check_sizes<jitgemm_counters>("jitgemm_counters", jitgemm_counters_init_sized,
                                [&](auto* counters) { return jitgemm_get_counters(context, counters); });
  check_sizes<jitgemm_predicted_time>("jitgemm_predicted_time", jitgemm_predicted_time_init_sized,
                                      [&](auto* time) { return jitgemm_plan_get_predicted_time(plan, time); });
  check_sizes<jitgemm_plan_info>("jitgemm_plan_info", jitgemm_plan_info_init_sized,
                                 [&](auto* info) { return jitgemm_plan_get_info(plan, info); });
  check_sizes<jitgemm_tuned_candidate>(
      "jitgemm_tuned_candidate", jitgemm_tuned_candidate_init_sized, [](auto* candidate) {
        return candidate ? jitgemm_tune_report_candidate(nullptr, 0, nullptr, candidate)
                         : jitgemm_tuned_candidate_init(nullptr);
      });
}

TEST_CASE("A reserved word that is not 0 is refused, whose it is", "[c][hostile]") {
  const auto refuses = [](const char* message, auto change) {
    jitgemm_problem problem = new_problem();
    change(problem);
    std::size_t needed = 0;
    CHECK_THAT(invalid_argument(jitgemm_problem_to_string(&problem, nullptr, 0, &needed)), ContainsSubstring(message));
    CHECK(needed == 0);
  };
  refuses("jitgemm_problem.a has a reserved word", [](jitgemm_problem& p) { p.a.reserved[2] = -1; });
  refuses("jitgemm_problem.d has a reserved word", [](jitgemm_problem& p) { p.d.reserved_word = 1; });
  refuses("jitgemm_problem.b has a reserved word", [](jitgemm_problem& p) { p.b.reserved[0] = 1; });
  refuses("jitgemm_problem.c has a reserved word", [](jitgemm_problem& p) { p.c.reserved[0] = 1; });
  refuses("jitgemm_problem.d has a reserved word", [](jitgemm_problem& p) { p.d.reserved[1] = 1; });
  refuses("jitgemm_problem.epilogue has a reserved word", [](jitgemm_problem& p) { p.epilogue.reserved[6] = 1; });
  jitgemm_config config = new_config();
  config.reserved_word = 1;
  std::size_t needed = 0;
  CHECK_THAT(invalid_argument(jitgemm_config_to_string(&config, nullptr, 0, &needed)),
             ContainsSubstring("jitgemm_config has a reserved word"));
  for (const bool nested : {false, true}) {
    auto options = made_by<jitgemm_options>(jitgemm_options_init);
    options.device = JITGEMM_DEVICE_EMULATOR;
    if (nested)
      options.constraints.reserved[2] = 1;
    else
      options.reserved_word = 1;
    jitgemm_context* context = nullptr;
    CHECK_THAT(invalid_argument(jitgemm_context_create(&options, &context)),
               ContainsSubstring(nested ? "jitgemm_options.constraints has" : "jitgemm_options has"));
    CHECK(context == nullptr);
  }
}

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

TEST_CASE("NULL for anything that must be there is one error that names it, and writes nothing", "[c][hostile]") {
  const TemporaryDirectory cache;
  const CContext context(without_device(cache));
  jitgemm_problem problem = new_problem();
  problem.m = problem.n = problem.k = 64;
  const jitgemm_operands operands = made_by<jitgemm_operands>(jitgemm_operands_init);
  const CPlan plan(context, c::problem_of(&problem), nullptr);
  jitgemm_candidates* list = nullptr;
  REQUIRE(jitgemm_candidates_create(context, &problem, &list) == JITGEMM_STATUS_SUCCESS);
  jitgemm_config config = new_config();
  auto device = made_by<jitgemm_device>(jitgemm_device_init);
  auto counters = made_by<jitgemm_counters>(jitgemm_counters_init);
  auto info = made_by<jitgemm_plan_info>(jitgemm_plan_info_init);
  auto time = made_by<jitgemm_predicted_time>(jitgemm_predicted_time_init);
  const auto untouched = reinterpret_cast<jitgemm_plan*>(std::uintptr_t(1));
  jitgemm_plan* made = untouched;
  jitgemm_candidates* made_list = nullptr;
  jitgemm_tune_report* report = nullptr;
  std::size_t n = 99;
  double seconds = 99;
  char buffer[8];
  int count = 0;
  const auto is_refused = [&](const char* word, jitgemm_status status) {
    INFO("case " << count++);
    CHECK_THAT(invalid_argument(status), ContainsSubstring(std::string(word) + " is NULL"));
  };
  jitgemm_context* const no_context = nullptr;
  is_refused("text", jitgemm_problem_parse(nullptr, &problem));
  is_refused("name", jitgemm_problem_set_field(&problem, nullptr, "1"));
  is_refused("value", jitgemm_problem_set_field(&problem, "m", nullptr));
  is_refused("jitgemm_problem", jitgemm_problem_set_field(nullptr, "m", "1"));
  is_refused("text", jitgemm_config_parse(nullptr, &config));
  is_refused("count", jitgemm_cuda_device_count(nullptr));
  is_refused("context", jitgemm_context_create(nullptr, nullptr));
  is_refused("context", jitgemm_gemm(no_context, &problem, nullptr, &operands, nullptr));
  is_refused("jitgemm_problem", jitgemm_gemm(context, nullptr, nullptr, &operands, nullptr));
  is_refused("jitgemm_operands", jitgemm_gemm(context, &problem, nullptr, nullptr, nullptr));
  is_refused("context", jitgemm_warm(no_context, &problem));
  is_refused("jitgemm_problem", jitgemm_warm(context, nullptr));
  is_refused("context", jitgemm_workspace_size(no_context, &problem, nullptr, &n));
  is_refused("jitgemm_problem", jitgemm_workspace_size(context, nullptr, nullptr, &n));
  is_refused("bytes", jitgemm_workspace_size(context, &problem, nullptr, nullptr));
  is_refused("context", jitgemm_trim(no_context));
  is_refused("context", jitgemm_get_device(no_context, &device));
  is_refused("context", jitgemm_get_counters(no_context, &counters));
  is_refused("context", jitgemm_plan_create(no_context, &problem, nullptr, &made));
  is_refused("jitgemm_problem", jitgemm_plan_create(context, nullptr, nullptr, &made));
  is_refused("plan", jitgemm_plan_create(context, &problem, nullptr, nullptr));
  is_refused("plan", jitgemm_plan_run(nullptr, &operands, nullptr));
  is_refused("plan", jitgemm_plan_update(nullptr));
  is_refused("plan", jitgemm_plan_compile(nullptr));
  is_refused("plan", jitgemm_plan_get_problem(nullptr, &problem));
  is_refused("plan", jitgemm_plan_get_config(nullptr, &config));
  is_refused("plan", jitgemm_plan_get_predicted_time(nullptr, &time));
  is_refused("plan", jitgemm_plan_get_info(nullptr, &info));
  is_refused("plan", jitgemm_plan_get_runner_up(nullptr, 0, &config, &seconds));
  for (const auto get : {jitgemm_plan_explain, jitgemm_plan_json, jitgemm_plan_why, jitgemm_plan_rates,
                         jitgemm_plan_device, jitgemm_plan_source}) {
    is_refused("plan", get(nullptr, buffer, sizeof buffer, &n));
    CHECK_THAT(invalid_argument(get(plan, nullptr, 1, &n)), ContainsSubstring("buffer is NULL"));
  }
  is_refused("plan", jitgemm_plan_binary(nullptr, buffer, sizeof buffer, &n));
  is_refused("plan", jitgemm_plan_kernel_count(nullptr, &n));
  is_refused("count", jitgemm_plan_kernel_count(plan, nullptr));
  for (const auto get : {jitgemm_plan_kernel_name, jitgemm_plan_kernel_entry, jitgemm_plan_kernel_source})
    is_refused("plan", get(nullptr, 0, buffer, sizeof buffer, &n));
  is_refused("plan", jitgemm_plan_kernel_binary(nullptr, 0, buffer, sizeof buffer, &n));
  is_refused("context", jitgemm_candidates_create(no_context, &problem, &made_list));
  is_refused("jitgemm_problem", jitgemm_candidates_create(context, nullptr, &made_list));
  is_refused("candidates", jitgemm_candidates_create(context, &problem, nullptr));
  is_refused("candidates", jitgemm_candidates_count(nullptr, &n));
  is_refused("count", jitgemm_candidates_count(list, nullptr));
  is_refused("candidates", jitgemm_candidates_plan(nullptr, 0, &made));
  is_refused("plan", jitgemm_candidates_plan(list, 0, nullptr));
  is_refused("context", jitgemm_tune(no_context, &problem, nullptr, nullptr, &report));
  is_refused("jitgemm_problem", jitgemm_tune(context, nullptr, nullptr, nullptr, &report));
  is_refused("report", jitgemm_tune_report_seconds(nullptr, &seconds));
  is_refused("report", jitgemm_tune_report_plan(nullptr, &made));
  is_refused("report", jitgemm_tune_report_count(nullptr, &n));
  is_refused("report", jitgemm_tune_report_candidate(nullptr, 0, nullptr, nullptr));
  is_refused("report", jitgemm_tune_report_skipped(nullptr, 0, buffer, sizeof buffer, &n));
  CHECK(n == 99);
  CHECK(seconds == 99);
  CHECK(made == untouched);
  CHECK(made_list == nullptr);
  CHECK(report == nullptr);
  CHECK(text(problem) == "m=64 n=64 k=64 a=f16 b=f16 d=f16");
  jitgemm_context_destroy(nullptr);
  jitgemm_plan_destroy(nullptr);
  jitgemm_candidates_destroy(nullptr);
  jitgemm_tune_report_destroy(nullptr);

  std::size_t there = 0;
  REQUIRE(jitgemm_candidates_count(list, &there) == JITGEMM_STATUS_SUCCESS);
  for (const std::size_t index : {there, there + 1, SIZE_MAX}) {
    CHECK_THAT(invalid_argument(jitgemm_candidates_plan(list, index, &made)), ContainsSubstring("candidates"));
    CHECK_THAT(invalid_argument(jitgemm_plan_get_runner_up(plan, index, &config, &seconds)),
               ContainsSubstring("runners-up"));
    CHECK_THAT(invalid_argument(jitgemm_plan_kernel_source(plan, index, buffer, sizeof buffer, &n)),
               ContainsSubstring("kernels"));
    CHECK_THAT(invalid_argument(jitgemm_plan_kernel_binary(plan, index, buffer, sizeof buffer, &n)),
               ContainsSubstring("kernels"));
  }
  CHECK(made == untouched);
  jitgemm_candidates_destroy(list);
}
