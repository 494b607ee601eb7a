// What a call does: find or make its kernel, and launch it.
#include <bit>

#include "context_impl.hpp"
#include "core/groups.hpp"
#include "core/operands.hpp"
#include "jitgemm/error.hpp"
#include "with_names.hpp"

namespace jitgemm {
namespace {

/// Whether a workspace that the caller brings is large enough.
bool fits(const Ready& ready, const Operands& operands) {
  return !operands.workspace || ready.shape.workspace_bytes() <= operands.workspace_bytes;
}

void check_workspace(const Operands& operands, std::size_t needed) {
  if (operands.workspace_bytes < needed) {
    throw Error(ErrorCode::workspace_too_small, "the workspace has " + std::to_string(operands.workspace_bytes) +
                                                    " bytes where this configuration needs " + std::to_string(needed) +
                                                    "; ask for the size with it, or pass none");
  }
  if (std::bit_cast<std::uintptr_t>(operands.workspace) % 256 != 0)
    throw Error(ErrorCode::invalid_operand, "the workspace is not 256-byte aligned; align it");
}

}  // namespace

void Context::Impl::gemm(const Problem& asked, const Operands& operands, Stream stream, const KernelConfig* pinned) {
  with_names(asked, pinned, [&] {
    const NormalProblem normalised = normalise(asked);
    if (is_empty(normalised)) return;
    const NormalProblem problem = with_operands(normalised, operands);
    checked_pointers.check(*backend, problem, operands, stream);
    ReadyKey key{shape_of(problem), pinned ? std::optional(*pinned) : std::nullopt};
    std::optional<Ready> ready = ready_for(key, asked, problem, operands, stream);
    if (ready && !pinned && !fits(*ready, operands)) {
      key.workspace_bytes = operands.workspace_bytes;
      ready = ready_for(key, asked, problem, operands, stream);
    }
    if (ready) with_names(asked, &ready->config, [&] { launch_resident(key, *ready, problem, operands, stream); });
  });
}

std::optional<Ready> Context::Impl::ready_for(const ReadyKey& key, const Problem& asked, const NormalProblem& problem,
                                              const Operands& operands, Stream stream) {
  std::optional<Ready> ready(std::in_place);
  if (ready_table.find(key, *ready)) return ready;
  if (serve_meanwhile(key, asked, problem, operands, stream)) return std::nullopt;
  *ready = make_ready(key, problem, stream);
  return ready;
}

bool Context::Impl::serve_meanwhile(const ReadyKey& key, const Problem& asked, const NormalProblem& problem,
                                    const Operands& operands, Stream stream) {
  if (!first_calls || key.pinned || backend->capture_status(stream) == CaptureStatus::capturing) return false;
  const auto stopgap = first_calls->stopgap(key, problem);
  if (!stopgap || (stopgap->kernel && !fits(*stopgap->kernel, operands))) return false;
  if (stopgap->kernel)
    with_names(asked, &stopgap->kernel->config,
               [&] { launch_resident(key, *stopgap->kernel, problem, operands, stream); });
  else if (!fallback(asked, operands, stream))
    return false;
  stopgaps.fetch_add(1, std::memory_order_relaxed);
  return true;
}

Ready Context::Impl::make_ready(const ReadyKey& key, const NormalProblem& problem, Stream stream) {
  const std::uint64_t epoch = ready_table.epoch();
  const bool capturing = backend->capture_status(stream) == CaptureStatus::capturing;
  bool settled = true;
  const KernelConfig config = key.pinned ? pinned_choice(problem, *key.pinned).config
                              : key.workspace_bytes != SIZE_MAX
                                  ? chooser.choose_within(problem, key.workspace_bytes).config
                                  : chooser.choose(problem, !capturing, &settled).config;
  const Ready ready = with_names(problem, &config, [&] {
    const auto relaxed = backend->relax_capture();
    const Ready made = jitgemm::make_ready(store, problem, config, backend->device());
    if (residency.holds(made, stream)) return made;
    if (key.pinned) Residency::refuse(made);
    return residency.instead_of(made, problem, stream);
  });
  if (settled) ready_table.add(key, ready, epoch);
  return ready;
}

void Context::Impl::launch_resident(const ReadyKey& key, const Ready& ready, const NormalProblem& problem,
                                    const Operands& operands, Stream stream) {
  try {
    return launch(ready, problem, operands, stream);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::launch_failed || !residency.is_why_it_failed(ready, stream)) throw;
  }
  // This stream has less of the device than the one for which the kernel was made ready.
  ReadyKey confined = key;
  confined.confined = true;
  Ready smaller;
  if (!ready_table.find(confined, smaller) || !residency.holds(smaller, stream))
    smaller = make_ready(confined, problem, stream);
  launch(smaller, problem, operands, stream);
}

void Context::Impl::launch(const Ready& ready, const NormalProblem& problem, const Operands& operands, Stream stream,
                           const ShardOperands* shards) {
  device::GroupFaults* const faults = has_groups(problem) ? group_faults.on_device() : nullptr;
  const auto enqueue = [&](Workspace workspace) {
    workspace.group_faults = faults;
    workspace.shards = shards;
    for_each_step(
        ready, problem, operands, workspace, [this](const TensorMapSpec& spec) { return tensor_maps.get(spec); },
        [&](const Step& step) { jitgemm::launch(*backend, step, stream); });
  };
  workspaces.free_dropped(stream);
  WorkspaceNeed need{ready.shape.workspace_bytes(), ready.shape.counters};
  if (operands.workspace && need.bytes > 0) {
    check_workspace(operands, need.bytes);
    need.bytes = 0;
    workspaces.with_workspace(stream, need, [&](Workspace workspace) {
      workspace.memory = operands.workspace;
      enqueue(workspace);
    });
  } else if (need.bytes > 0 || need.counters > 0) {
    workspaces.with_workspace(stream, need, enqueue);
  } else {
    enqueue({});
  }
  launches.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace jitgemm
