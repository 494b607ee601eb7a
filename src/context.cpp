#include "jitgemm/context.hpp"

#include "context_impl.hpp"
#include "context_internals.hpp"
#include "core/enumerators.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "kernels/legality.hpp"
#include "plan/cost_model.hpp"
#include "plan/ranking.hpp"
#include "with_names.hpp"

namespace jitgemm {

Choice Context::Impl::pinned_choice(const NormalProblem& problem, const KernelConfig& config) {
  if (!is_known(config.main_loop) || !is_known(config.schedule)) {
    throw Error(ErrorCode::invalid_config, "unknown main loop or schedule; use an enumerator of MainLoop and Schedule");
  }
  if (const std::string broken = why_illegal(config, problem, backend->device()); !broken.empty()) {
    throw Error(
        ErrorCode::invalid_config,
        "the configuration is not legal here: " + broken +
            "; candidates(), or `jitgemm explain --candidates N`, lists those that are, of a problem with these "
            "alignments")
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
    const Chooser::Tuned tuned = self.chooser.tune(problem, progress);
    self.ready_table.clear();
    return TuneReport{.plan = self.make_plan(problem, tuned.choice),
                      .candidates = tuned.result.candidates,
                      .seconds = tuned.result.seconds};
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
  with_memory_errors([&] { impl().group_faults.check(stream); });
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

Chooser& ContextInternals::chooser(const Context& context) { return context.impl().chooser; }

Ready ContextInternals::make_sharded_ready(const Context& context, const NormalProblem& problem,
                                           const KernelConfig& config) {
  Context::Impl& impl = context.impl();
  const auto relaxed = impl.backend->relax_capture();
  return with_names(problem, &config,
                    [&] { return jitgemm::make_ready(impl.store, problem, config, impl.backend->device()); });
}

void ContextInternals::launch_sharded(const Context& context, const Ready& ready, const NormalProblem& problem,
                                      const Operands& operands, const ShardOperands& shards, Stream stream) {
  context.impl().launch(ready, problem, operands, stream, &shards);
}

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
