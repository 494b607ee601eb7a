#pragma once

#include <new>

#include "core/out_of_memory.hpp"
#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/kernel_config.hpp"

namespace jitgemm {

/// As many of the names as there is memory for: the error itself counts more.
inline void add_names(Error& error, const Problem& problem, const KernelConfig* config) noexcept {
  try {
    if (error.problem().empty()) error.with_problem(to_string(problem));
    if (config && error.config().empty()) error.with_config(to_string(*config));
  } catch (...) {
  }
}

/// Runs `call`, and has what it throws say which problem and configuration it was about.
template <typename Call>
auto with_names(const Problem& problem, const KernelConfig* config, Call&& call) {
  try {
    return with_memory_errors(call);
  } catch (Error& error) {
    add_names(error, problem, config);
    throw;
  }
}

}  // namespace jitgemm
