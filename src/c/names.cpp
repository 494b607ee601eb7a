// Enumerators, problems and configurations as texts.
#include "c/text.hpp"
#include "c/values.hpp"

namespace jitgemm::c {
namespace {

/// Words are literals in the library, and so end in a NUL.
template <typename Enum>
const char* word_of(std::int32_t value) {
  return to_string(enumerator_of<Enum>(value)).data();
}

template <typename Enum, typename Parse>
jitgemm_status parse_word(const char* text, std::int32_t* value, const char* what, Parse parse) {
  return guarded([&] {
    given(text, "text");
    given(value, what);
    if (const std::optional<Enum> found = parse(text)) {
      *value = static_cast<std::int32_t>(*found);
      return;
    }
    std::string words;
    for (int i = 0; parse(word_of<Enum>(i)); ++i) words += (i > 0 ? ", " : "") + std::string(word_of<Enum>(i));
    refuse(JITGEMM_STATUS_INVALID_ARGUMENT, std::string("\"") + text + "\" is no " + what + "; use one of " + words);
  });
}

}  // namespace
}  // namespace jitgemm::c

using namespace jitgemm::c;

const char* jitgemm_version() { return JITGEMM_VERSION; }

const char* jitgemm_data_type_name(jitgemm_data_type type) { return word_of<jitgemm::DataType>(type); }
const char* jitgemm_layout_name(jitgemm_layout layout) { return word_of<jitgemm::Layout>(layout); }
const char* jitgemm_bias_name(jitgemm_bias bias) { return word_of<jitgemm::Bias>(bias); }
const char* jitgemm_activation_name(jitgemm_activation activation) { return word_of<jitgemm::Activation>(activation); }
const char* jitgemm_scaling_name(jitgemm_scaling scaling) { return word_of<jitgemm::Scaling>(scaling); }
const char* jitgemm_batch_mode_name(jitgemm_batch_mode batch_mode) { return word_of<jitgemm::BatchMode>(batch_mode); }
const char* jitgemm_grouping_name(jitgemm_grouping grouping) { return word_of<jitgemm::Grouping>(grouping); }
const char* jitgemm_accumulation_name(jitgemm_accumulation accumulation) {
  return word_of<jitgemm::Accumulation>(accumulation);
}
const char* jitgemm_main_loop_name(jitgemm_main_loop main_loop) { return word_of<jitgemm::MainLoop>(main_loop); }
const char* jitgemm_schedule_name(jitgemm_schedule schedule) { return word_of<jitgemm::Schedule>(schedule); }
const char* jitgemm_choice_source_name(jitgemm_choice_source source) { return word_of<jitgemm::PlanSource>(source); }

jitgemm_status jitgemm_data_type_parse(const char* text, jitgemm_data_type* type) {
  return parse_word<jitgemm::DataType>(text, type, "type", jitgemm::parse_data_type);
}
jitgemm_status jitgemm_layout_parse(const char* text, jitgemm_layout* layout) {
  return parse_word<jitgemm::Layout>(text, layout, "layout", jitgemm::parse_layout);
}
jitgemm_status jitgemm_bias_parse(const char* text, jitgemm_bias* bias) {
  return parse_word<jitgemm::Bias>(text, bias, "bias", jitgemm::parse_bias);
}
jitgemm_status jitgemm_activation_parse(const char* text, jitgemm_activation* activation) {
  return parse_word<jitgemm::Activation>(text, activation, "activation", jitgemm::parse_activation);
}
jitgemm_status jitgemm_scaling_parse(const char* text, jitgemm_scaling* scaling) {
  return parse_word<jitgemm::Scaling>(text, scaling, "scaling", jitgemm::parse_scaling);
}
jitgemm_status jitgemm_batch_mode_parse(const char* text, jitgemm_batch_mode* batch_mode) {
  return parse_word<jitgemm::BatchMode>(text, batch_mode, "batch mode", jitgemm::parse_batch_mode);
}
jitgemm_status jitgemm_grouping_parse(const char* text, jitgemm_grouping* grouping) {
  return parse_word<jitgemm::Grouping>(text, grouping, "grouping", jitgemm::parse_grouping);
}
jitgemm_status jitgemm_accumulation_parse(const char* text, jitgemm_accumulation* accumulation) {
  return parse_word<jitgemm::Accumulation>(text, accumulation, "accumulation", jitgemm::parse_accumulation);
}
jitgemm_status jitgemm_schedule_parse(const char* text, jitgemm_schedule* schedule) {
  return parse_word<jitgemm::Schedule>(text, schedule, "schedule", jitgemm::parse_schedule);
}

std::int32_t jitgemm_bits_of(jitgemm_data_type type) {
  return jitgemm::bits_of(enumerator_of<jitgemm::DataType>(type));
}
std::size_t jitgemm_size_of(jitgemm_data_type type) { return jitgemm::size_of(enumerator_of<jitgemm::DataType>(type)); }
jitgemm_data_type jitgemm_default_output(jitgemm_data_type a) {
  return static_cast<jitgemm_data_type>(jitgemm::default_output(enumerator_of<jitgemm::DataType>(a)));
}

jitgemm_status jitgemm_problem_to_string(const jitgemm_problem* problem, char* buffer, std::size_t capacity,
                                         std::size_t* needed) {
  return guarded([&] {
    const TextOut out(buffer, capacity, needed);
    const std::string text = to_string(problem_of(problem));
    static_cast<void>(jitgemm::parse_problem(text));  // an enumerator that there is not has a text, too
    out.put_text(text);
  });
}
jitgemm_status jitgemm_problem_parse(const char* text, jitgemm_problem* problem) {
  return guarded([&] {
    const auto out = required(problem);
    out.put_whole(to_c(jitgemm::parse_problem(&given(text, "text"))));
  });
}
jitgemm_status jitgemm_epilogue_define(const char* text, std::uint64_t* function) {
  return guarded([&] {
    std::uint64_t& digest = given(function, "function");
    digest = jitgemm::define_epilogue(jitgemm::parse_epilogue(&given(text, "text")));
  });
}
jitgemm_status jitgemm_epilogue_text(std::uint64_t function, char* buffer, std::size_t capacity, std::size_t* needed) {
  return guarded([&] {
    const TextOut out(buffer, capacity, needed);
    out.put_text(to_string(jitgemm::epilogue_of(function)));
  });
}
jitgemm_status jitgemm_problem_set_field(jitgemm_problem* problem, const char* name, const char* value) {
  return guarded([&] {
    jitgemm::Problem changed = problem_of(problem);
    jitgemm::set_field(changed, &given(name, "name"), &given(value, "value"));
    required(problem).put_whole(to_c(changed));
  });
}

jitgemm_status jitgemm_config_to_string(const jitgemm_config* config, char* buffer, std::size_t capacity,
                                        std::size_t* needed) {
  return guarded([&] {
    const TextOut out(buffer, capacity, needed);
    const std::string text = to_string(config_of(config));
    static_cast<void>(jitgemm::parse_kernel_config(text));
    out.put_text(text);
  });
}
jitgemm_status jitgemm_config_parse(const char* text, jitgemm_config* config) {
  return guarded([&] {
    const auto out = required(config);
    out.put_whole(to_c(jitgemm::parse_kernel_config(&given(text, "text"))));
  });
}
