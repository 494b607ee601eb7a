#include "jitgemm/context.hpp"

#include <atomic>
#include <bit>

#include "broken_groups.hpp"
#include "checked_pointers.hpp"
#include "chooser.hpp"
#include "context_internals.hpp"
#include "context_options.hpp"
#include "core/enumerators.hpp"
#include "core/groups.hpp"
#include "first_calls.hpp"
#include "jit/call.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "kernels/legality.hpp"
#include "plan/cost_model.hpp"
#include "plan/ranking.hpp"
#include "plan_of.hpp"
#include "ready_table.hpp"
#include "residency.hpp"
#include "tensor_map_cache.hpp"
#include "with_names.hpp"
#include "workspace_pool.hpp"

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

struct Context::Impl {
  explicit Impl(const ContextOptions& options)
      : chooser_options(jitgemm::chooser_options(options)),
        backend(make_backend(options)),
        cache(cache_options(options)),
        store(*backend, cache),
        at_hand(*backend, store, cache, ready_table),
        chooser(*backend, store, at_hand, rated_device(options, backend->device()), chooser_options),
        residency(*backend, store, chooser),
        workspaces(*backend, options.workspace_bound_bytes),
        broken_groups(*backend),
        tensor_maps(*backend),
        fallback(options.fallback) {
    if (compiles_in_background(options))
      first_calls.emplace(*backend, store, chooser, at_hand, options.fallback != nullptr);
  }

  void gemm(const Problem& problem, const Operands& operands, Stream stream, const KernelConfig* pinned);
  /// False: the call waits for its kernel.
  bool serve_meanwhile(const ReadyKey& key, const Problem& asked, const NormalProblem& problem,
                       const Operands& operands, Stream stream);
  /// What is remembered for the key, else chosen and made. nullopt: the call has been served by other means.
  std::optional<Ready> ready_for(const ReadyKey& key, const Problem& asked, const NormalProblem& problem,
                                 const Operands& operands, Stream stream);
  Ready make_ready(const ReadyKey& key, const NormalProblem& problem, Stream stream);
  /// Launches what is ready or, where the stream's part of the device cannot hold it, what it can.
  void launch_resident(const ReadyKey& key, const Ready& ready, const NormalProblem& problem, const Operands& operands,
                       Stream stream);
  void launch(const Ready& ready, const NormalProblem& problem, const Operands& operands, Stream stream);

  Choice pinned_choice(const NormalProblem& problem, const KernelConfig& config);
  Choice preview(const NormalProblem& problem, const KernelConfig* pinned) {
    return pinned ? pinned_choice(problem, *pinned) : chooser.preview(problem);
  }
  Plan make_plan(const NormalProblem& problem, const Choice& choice) {
    return plan_of(problem, choice, chooser.device(), chooser.constraints());
  }
  Plan plan(const Problem& problem, const KernelConfig* pinned);
  Plan compile(const Problem& problem, const KernelConfig* pinned);
  /// Of each kernel of a call, what `text_of` makes of its source.
  std::vector<KernelText> texts(const Problem& problem, const KernelConfig* pinned,
                                FunctionRef<std::string(const KernelSource&)> text_of);
  std::vector<KernelText> sources(const Problem& problem, const KernelConfig* pinned) {
    return texts(problem, pinned, [](const KernelSource& source) { return source.text; });
  }
  std::vector<KernelText> binaries(const Problem& problem, const KernelConfig* pinned) {
    return texts(problem, pinned, [this](const KernelSource& source) { return store.warm(source).binary.code; });
  }
  KernelSource gemm_source(const Problem& problem, const KernelConfig* pinned);
  KernelBinary gemm_binary(const Problem& problem, const KernelConfig* pinned);
  std::size_t workspace_size(const Problem& problem, const KernelConfig* pinned);

  ChooserOptions chooser_options;
  std::unique_ptr<Backend> backend;
  KernelCache cache;
  KernelStore store;
  ReadyTable ready_table;
  KernelsAtHand at_hand;
  Chooser chooser;
  Residency residency;
  WorkspacePool workspaces;
  BrokenGroups broken_groups;
  TensorMapCache tensor_maps;
  CheckedPointers checked_pointers;
  std::function<bool(const Problem&, const Operands&, Stream)> fallback;
  std::atomic<std::uint64_t> launches = 0, stopgaps = 0;
  std::optional<FirstCalls> first_calls;  // last: its threads use the others
};

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

void Context::Impl::launch(const Ready& ready, const NormalProblem& problem, const Operands& operands, Stream stream) {
  unsigned* const broken = has_groups(problem) ? broken_groups.count() : nullptr;
  const auto enqueue = [&](Workspace workspace) {
    workspace.broken_groups = broken;
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

Choice Context::Impl::pinned_choice(const NormalProblem& problem, const KernelConfig& config) {
  if (!is_known(config.main_loop) || !is_known(config.schedule)) {
    throw Error(ErrorCode::invalid_config, "unknown main loop or schedule; use an enumerator of MainLoop and Schedule");
  }
  if (const std::string broken = why_illegal(config, problem, backend->device()); !broken.empty()) {
    throw Error(ErrorCode::invalid_config,
                "the configuration is not legal here: " + broken +
                    "; the candidates are those that are, of a problem with these alignments")
        .with_config(to_string(config));
  }
  return {config, PlanSource::pinned, "given by the caller", predict_us(config, problem, chooser.device()), 0, 0};
}

Plan Context::Impl::plan(const Problem& asked, const KernelConfig* pinned) {
  const NormalProblem problem = normalise(asked);
  Plan plan = make_plan(problem, preview(problem, pinned));
  const KernelSource gemm = gemm_role().generate(problem, plan.config, backend->device());
  const CacheKey key = cache_key(gemm, backend->compiler_kind());
  if (const auto entry = cache.find(key, [&] { return backend->compiler_version(); })) {
    plan.registers = entry->binary.registers;
    plan.spill_bytes = entry->binary.spill_bytes;
  }
  return plan;
}

Plan Context::Impl::compile(const Problem& asked, const KernelConfig* pinned) {
  const NormalProblem problem = normalise(asked);
  Plan plan = make_plan(problem, preview(problem, pinned));
  with_names(asked, &plan.config, [&] {
    for (const KernelRole* role : roles_of(problem, plan.config)) {
      const KernelBinary binary = store.warm(role->generate(problem, plan.config, backend->device())).binary;
      plan.registers = binary.registers;  // the last one's: the GEMM kernel's
      plan.spill_bytes = binary.spill_bytes;
    }
  });
  return plan;
}

std::vector<KernelText> Context::Impl::texts(const Problem& asked, const KernelConfig* pinned,
                                             FunctionRef<std::string(const KernelSource&)> text_of) {
  const NormalProblem problem = normalise(asked);
  const KernelConfig config = preview(problem, pinned).config;
  return with_names(asked, &config, [&] {
    std::vector<KernelText> texts;
    for (const KernelRole* role : roles_of(problem, config)) {
      const KernelSource source = role->generate(problem, config, backend->device());
      texts.push_back({std::string(role->name), source.entry, text_of(source)});
    }
    return texts;
  });
}

KernelSource Context::Impl::gemm_source(const Problem& asked, const KernelConfig* pinned) {
  const NormalProblem problem = normalise(asked);
  const KernelConfig config = preview(problem, pinned).config;
  return gemm_role().generate(problem, config, backend->device());
}

KernelBinary Context::Impl::gemm_binary(const Problem& asked, const KernelConfig* pinned) {
  const NormalProblem problem = normalise(asked);
  const KernelConfig config = preview(problem, pinned).config;
  return with_names(asked, &config,
                    [&] { return store.warm(gemm_role().generate(problem, config, backend->device())).binary; });
}

std::size_t Context::Impl::workspace_size(const Problem& asked, const KernelConfig* pinned) {
  const NormalProblem problem = normalise(asked);
  // A later gemm() must not choose anew and need more, so this counts as the first use.
  const Choice choice = pinned ? pinned_choice(problem, *pinned) : chooser.choose(problem, true);
  return launch_shape(problem, choice.config).workspace_bytes();
}

Context::Context() : Context(ContextOptions{}) {}
Context::Context(const ContextOptions& options)
    : impl_(with_memory_errors([&] { return std::make_unique<Impl>(options); })) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

Context::Impl& Context::impl() const {
  if (!impl_) {
    with_memory_errors(
        [] { throw Error(ErrorCode::no_device, "this Context was moved from; use the one that it was moved to"); });
  }
  return *impl_;
}

void Context::gemm(const Problem& problem, const Operands& operands, Stream stream) {
  impl().gemm(problem, operands, stream, nullptr);
}
void Context::gemm(const Problem& problem, const Operands& operands, Stream stream, const KernelConfig& config) {
  impl().gemm(problem, operands, stream, &config);
}

Plan Context::plan(const Problem& problem) {
  return with_names(problem, nullptr, [&] { return impl().plan(problem, nullptr); });
}
Plan Context::plan(const Problem& problem, const KernelConfig& config) {
  return with_names(problem, &config, [&] { return impl().plan(problem, &config); });
}

Plan Context::compile(const Problem& problem) {
  return with_names(problem, nullptr, [&] { return impl().compile(problem, nullptr); });
}
Plan Context::compile(const Problem& problem, const KernelConfig& config) {
  return with_names(problem, &config, [&] { return impl().compile(problem, &config); });
}

std::string Context::source(const Problem& problem) {
  return with_names(problem, nullptr, [&] { return impl().gemm_source(problem, nullptr).text; });
}
std::string Context::source(const Problem& problem, const KernelConfig& config) {
  return with_names(problem, &config, [&] { return impl().gemm_source(problem, &config).text; });
}

std::string Context::binary(const Problem& problem) {
  return with_names(problem, nullptr, [&] { return impl().gemm_binary(problem, nullptr).code; });
}
std::string Context::binary(const Problem& problem, const KernelConfig& config) {
  return with_names(problem, &config, [&] { return impl().gemm_binary(problem, &config).code; });
}

std::vector<KernelText> Context::sources(const Problem& problem) {
  return with_names(problem, nullptr, [&] { return impl().sources(problem, nullptr); });
}
std::vector<KernelText> Context::sources(const Problem& problem, const KernelConfig& config) {
  return with_names(problem, &config, [&] { return impl().sources(problem, &config); });
}

std::vector<KernelText> Context::binaries(const Problem& problem) {
  return with_names(problem, nullptr, [&] { return impl().binaries(problem, nullptr); });
}
std::vector<KernelText> Context::binaries(const Problem& problem, const KernelConfig& config) {
  return with_names(problem, &config, [&] { return impl().binaries(problem, &config); });
}

void Context::warm(const Problem& problem) { compile(problem); }

TuneReport Context::tune(const Problem& asked, const std::function<void(int, int)>& progress) {
  return with_names(asked, nullptr, [&] {
    Impl& self = impl();
    const NormalProblem problem = normalise(asked);
    if (!reads_ab(problem)) {
      throw Error(ErrorCode::invalid_problem, "nothing is multiplied, so there is nothing to tune; give sizes above 0");
    }
    const TuneResult result = self.chooser.tune(problem, progress);
    self.ready_table.clear();
    TuneReport report;
    report.plan = self.make_plan(
        problem, {result.config, PlanSource::measured, why_chosen(result) + self.chooser.measured_as(problem),
                  self.chooser.planner(problem).predict_us(result.config), result.median_us, result.spread, 0,
                  runners_up_of(result)});
    report.candidates = result.candidates;
    report.seconds = result.seconds;
    return report;
  });
}

std::vector<Plan> Context::candidates(const Problem& asked) {
  return with_names(asked, nullptr, [&] {
    const NormalProblem problem = normalise(asked);
    std::vector<Plan> plans;
    for (const RankedConfig& ranked : impl().chooser.planner(problem).ranked()) {
      plans.push_back(impl().make_plan(
          problem, {ranked.config, PlanSource::model,
                    "number " + std::to_string(plans.size() + 1) + " by the cost model", ranked.predicted_us, 0, 0}));
    }
    return plans;
  });
}

std::size_t Context::workspace_size(const Problem& problem) {
  return with_names(problem, nullptr, [&] { return impl().workspace_size(problem, nullptr); });
}
std::size_t Context::workspace_size(const Problem& problem, const KernelConfig& config) {
  return with_names(problem, &config, [&] { return impl().workspace_size(problem, &config); });
}

void Context::trim() {
  with_memory_errors([this] { impl().workspaces.trim(); });
}

void Context::check(Stream stream) {
  with_memory_errors([&] { impl().broken_groups.check(stream); });
}

DeviceDescription Context::device() const {
  return with_memory_errors([this] { return describe(impl().backend->device()); });
}

Counters Context::counters() const {
  const Impl& self = impl();
  Counters counters;
  counters.launches = self.launches;
  counters.compiles = self.store.compiles();
  counters.unkept = self.cache.unkept();
  counters.disk_hits = self.store.disk_hits();
  counters.memory_hits = self.store.memory_hits();
  counters.rebuilt = self.store.rebuilt();
  counters.tuned = self.chooser.tuned();
  counters.stopgaps = self.stopgaps;
  counters.workspace_bytes = self.workspaces.stream_bytes();
  counters.graph_workspace_bytes = self.workspaces.graph_bytes();
  return counters;
}

Backend& ContextInternals::backend(const Context& context) { return *context.impl().backend; }

KernelStore& ContextInternals::store(const Context& context) { return context.impl().store; }

void ContextInternals::make_ready(const Context& context, const Problem& asked, const KernelConfig& config) {
  with_names(asked, &config, [&] {
    const NormalProblem problem = normalise(asked);
    if (is_empty(problem)) return;
    const ReadyKey key{shape_of(problem), config};
    if (Ready ready; !context.impl().ready_table.find(key, ready)) context.impl().make_ready(key, problem, nullptr);
  });
}

void ContextInternals::warm_check(const Context& context, const Problem& problem) {
  Context::Impl& impl = context.impl();
  impl.store.warm(generate_check(normalise(problem), impl.backend->device()));
}

}  // namespace jitgemm
