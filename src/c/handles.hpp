#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "c/errors.hpp"
#include "jitgemm/context.hpp"
#include "jitgemm/jitgemm.h"

namespace jitgemm::c {

/// What is known of a choice, and the texts of its kernels once somebody has asked. Threads may ask at once.
class Facts {
 public:
  explicit Facts(Plan known) : plan(std::move(known)) {}

  const std::vector<KernelText>& sources(Context& context);
  const std::vector<KernelText>& binaries(Context& context);
  const std::string& binary(Context& context);  ///< the GEMM kernel's

  const Plan plan;

 private:
  std::mutex mutex_;
  std::optional<std::vector<KernelText>> sources_, binaries_;
  std::optional<std::string> binary_;
};

/// Gives a handle away once nothing can fail any more.
template <typename Handle>
void put_handle(Handle** to, std::unique_ptr<Handle> made) {
  *to = made.release();
}

}  // namespace jitgemm::c

struct jitgemm_context {
  std::shared_ptr<jitgemm::Context> context;
};

struct jitgemm_plan {
  jitgemm_plan(std::shared_ptr<jitgemm::Context> context, const jitgemm::Problem& problem,
               const std::optional<jitgemm::KernelConfig>& pinned, jitgemm::Plan known)
      : context(std::move(context)), problem(problem), pinned(pinned) {
    put(std::move(known));
  }

  std::shared_ptr<jitgemm::c::Facts> facts() const {
    const std::lock_guard lock(mutex_);
    return facts_;
  }
  void put(jitgemm::Plan known) {
    auto fresh = std::make_shared<jitgemm::c::Facts>(std::move(known));
    const std::lock_guard lock(mutex_);
    facts_.swap(fresh);
  }

  const std::shared_ptr<jitgemm::Context> context;
  const jitgemm::Problem problem;  // as it was asked
  const std::optional<jitgemm::KernelConfig> pinned;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<jitgemm::c::Facts> facts_;
};
