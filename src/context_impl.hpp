#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checked_pointers.hpp"
#include "chooser.hpp"
#include "context_options.hpp"
#include "first_calls.hpp"
#include "group_faults.hpp"
#include "jit/call.hpp"
#include "jitgemm/context.hpp"
#include "plan_of.hpp"
#include "ready_table.hpp"
#include "residency.hpp"
#include "tensor_map_cache.hpp"
#include "workspace_pool.hpp"

namespace jitgemm {

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
        group_faults(*backend),
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
  void launch(const Ready& ready, const NormalProblem& problem, const Operands& operands, Stream stream,
              const ShardOperands* shards = nullptr);

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
  GroupFaultCounts group_faults;
  TensorMapCache tensor_maps;
  CheckedPointers checked_pointers;
  std::function<bool(const Problem&, const Operands&, Stream)> fallback;
  std::atomic<std::uint64_t> launches = 0, stopgaps = 0;
  std::optional<FirstCalls> first_calls;  // last: its threads use the others
};

}  // namespace jitgemm
