#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "c/versioned.hpp"
#include "jitgemm/context.hpp"
#include "jitgemm/epilogue.hpp"
#include "jitgemm/jitgemm.h"

namespace jitgemm::c {

/// An enumerator of the C API as the C++ one. What is out of all range becomes 255, which no enumeration has, so that
/// the library refuses it by name.
template <typename Enum>
Enum enumerator_of(std::int32_t value) {
  return static_cast<Enum>(value >= 0 && value < 255 ? value : 255);
}

template <typename Enum>
std::int32_t number_of(Enum value) {
  return static_cast<std::int32_t>(value);
}

/// Fails for a word of the struct `name` to which later versions will give a meaning.
void check_reserved(const char* name, std::int32_t word);

// Each names all fields of the C++ struct, so that one that is added there and forgotten here does not compile.
jitgemm_problem to_c(const Problem& problem);
jitgemm_operands to_c(const Operands& operands);
jitgemm_config to_c(const KernelConfig& config);
jitgemm_constraints to_c(const Constraints& constraints);
jitgemm_options to_c(const ContextOptions& options);  ///< without texts and callbacks
jitgemm_device to_c(const DeviceDescription& device);
jitgemm_counters to_c(const Counters& counters);
jitgemm_predicted_time to_c(const PredictedTime& time);
jitgemm_plan_info info_to_c(const Plan& plan);  ///< what of it is neither a text nor a struct of its own
jitgemm_tuned_candidate to_c(const TunedCandidate& candidate);

// The inverses, of structs of any version.
Problem problem_of(const jitgemm_problem* problem);
Operands operands_of(const jitgemm_operands* operands);
KernelConfig config_of(const jitgemm_config* config);
std::optional<KernelConfig> optional_config_of(const jitgemm_config* config);  ///< none of nullptr
ContextOptions options_of(const jitgemm_options* options);

JITGEMM_VERSIONED(jitgemm_problem, to_c(Problem{}), 400, 408)
JITGEMM_VERSIONED(jitgemm_operands, to_c(Operands{}), 88, 104, 120)
JITGEMM_VERSIONED(jitgemm_config, to_c(KernelConfig{}), 80)
JITGEMM_VERSIONED(jitgemm_options, to_c(ContextOptions{}), 176)
JITGEMM_VERSIONED(jitgemm_device, to_c(DeviceDescription{}), 328)
JITGEMM_VERSIONED(jitgemm_counters, to_c(Counters{}), 88)
JITGEMM_VERSIONED(jitgemm_predicted_time, to_c(PredictedTime{}), 72)
JITGEMM_VERSIONED(jitgemm_plan_info, info_to_c(Plan{}), 160)
JITGEMM_VERSIONED(jitgemm_tuned_candidate, to_c(TunedCandidate{}), 32)

}  // namespace jitgemm::c
