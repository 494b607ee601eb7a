#pragma once

#include <new>

#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/kernel_config.hpp"

namespace jitgemm {

/// Runs `call`, and has what it throws say which problem and configuration it was about.
template <typename Call>
auto with_names(const Problem& problem, const KernelConfig* config, Call&& call) {
  try {
    return call();
  } catch (Error& error) {
    if (error.problem().empty()) error.with_problem(to_string(problem));
    if (config && error.config().empty()) error.with_config(to_string(*config));
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "out of host memory; free some first").with_problem(to_string(problem));
  }
}

}  // namespace jitgemm
