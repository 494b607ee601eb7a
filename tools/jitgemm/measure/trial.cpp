#include "measure/trial.hpp"

#include <chrono>
#include <string>

#include "backend/backend.hpp"
#include "context_internals.hpp"
#include "core/groups.hpp"
#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "tune/group_rows.hpp"

namespace jitgemm::cli {

Distribution parse_distribution(std::string_view text, const Problem& problem) {
  if (!text.empty() && !has_groups(problem)) {
    throw Error(ErrorCode::invalid_option,
                "--distribution says how rows come to groups, and the problem has none: add --groups or --grouping, or "
                "leave it out");
  }
  if (text == "equal") return Distribution::equal;
  if (text.empty() || text == "uniform") return Distribution::uniform;
  if (text == "zipf") return Distribution::zipf;
  throw Error(ErrorCode::invalid_option,
              "unknown distribution \"" + std::string(text) + "\": use equal, uniform or zipf");
}

Trial::Trial(Context& context, const Plan& plan, Distribution distribution)
    : context_(context),
      backend_(ContextInternals::backend(context)),
      plan_(plan),
      stream_(backend_),
      inputs_(backend_, plan.problem.a.type, plan.problem.b.type) {
  inputs_.prepare(plan.problem, !backend_.device().emulated);
  if (has_groups(plan.problem)) inputs_.set_group_rows(drawn_group_rows(plan.problem, distribution, 1));
}

double Trial::run() {
  const Operands operands = inputs_.operands(0);
  poison(backend_, plan_.problem, operands);
  const auto begin = std::chrono::steady_clock::now();
  context_.gemm(plan_.problem, operands, stream_.get(), plan_.config);
  backend_.synchronize(stream_.get());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Check Trial::check() const { return check_against_reference(backend_, plan_.problem, inputs_.operands(0)); }

Timing Trial::time() {
  const std::size_t bytes = context_.workspace_size(plan_.problem, plan_.config);
  const DeviceMemory workspace = bytes ? DeviceMemory(backend_, bytes) : DeviceMemory();
  const Arm ours = [&](int set) {
    Operands operands = inputs_.operands(set);
    operands.workspace = workspace.data();
    operands.workspace_bytes = workspace.bytes();
    context_.gemm(plan_.problem, operands, stream_.get(), plan_.config);
  };
  return time_arms(backend_, stream_.get(), {ours}, inputs_.sets()).front();
}

double Trial::floor_us() const { return jitgemm::floor_us(plan_.problem); }

}  // namespace jitgemm::cli
