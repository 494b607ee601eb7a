// The enumerators and statuses of C: the numbers and words of C++.
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "c_structs.hpp"
#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/enumerators.hpp"
#include "core/error_names.hpp"
#include "core/problem.hpp"
#include "jitgemm/version.hpp"  // defines the same as jitgemm.h, or does not compile

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

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
