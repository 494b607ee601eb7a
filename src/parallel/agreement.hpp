#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/out_of_memory.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/plan.hpp"
#include "parallel/communicator.hpp"

namespace jitgemm {

// How ranks keep together: whatever goes wrong on one of them is an error on all, before anything is launched.

/// Collective. `digest`: of what the ranks are about to do. Throws on every rank if one of them has `failure`: there
/// that itself, elsewhere an Error of the same code that names the rank; else Error{invalid_problem}, which names the
/// ranks whose digests are not rank 0's.
void agree(Communicator& communicator, const std::string& digest, const std::optional<Error>& failure);

/// Runs `work`; what it throws becomes a failure for agree(). But what the communicator throws, which has failed then,
/// comes out at once.
template <typename Work>
std::optional<Error> failure_of(Work&& work);

/// Rank 0's choice, as it tells the others.
struct AgreedChoice {
  KernelConfig config;
  PlanSource source = PlanSource::model;
  std::string why;
  double measured_us = 0;  ///< of the rank's own product
  ParallelMethod method = ParallelMethod::unfused;
  std::string why_method;
  double together_us = 0;   ///< of a call, as the ranks have measured together; 0: they have not
  bool to_measure = false;  ///< they do before they settle on it
};

/// Collective. Calls `choose` on rank 0, and gives all ranks what it returns. Throws on every rank if it does.
AgreedChoice choose_on_first(Communicator& communicator, FunctionRef<AgreedChoice()> choose);

template <typename Work>
std::optional<Error> failure_of(Work&& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::communicator_failed) throw;
    return error;
  } catch (const std::exception& error) {
    return is_out_of_memory(error) ? out_of_memory_error() : Error(ErrorCode::internal, error.what());
  } catch (...) {  // of a callback's
    return Error(ErrorCode::internal, "an exception of the caller's own");
  }
}

}  // namespace jitgemm
