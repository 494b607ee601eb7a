#pragma once

#include <optional>

#include "jit/call.hpp"
#include "plan/ranking.hpp"

namespace jitgemm {

class Backend;
class Context;

/// For what measures and checks a Context: the parts that its users do without.
struct ContextInternals {
  /// What its calls run on. Lives as long as the Context, and stays the same when that is moved.
  static Backend& backend(const Context& context);
  /// Compiles what tuning the problem checks results by, into the cache.
  static void warm_check(const Context& context, const Problem& problem);

  /// A kernel besides those of gemm(), compiled if need be. Lives as long as the Context.
  static std::shared_ptr<const Kernel> kernel(const Context& context, const KernelSource& source,
                                              std::size_t smem_bytes);

  // Of problems of several ranks.
  /// The cost model's choice; nullopt if no kernel computes it.
  static std::optional<RankedConfig> choose_sharded(const Context& context, const NormalProblem& problem);
  static Ready make_sharded_ready(const Context& context, const NormalProblem& problem, const KernelConfig& config);
  static void launch_sharded(const Context& context, const Ready& ready, const NormalProblem& problem,
                             const Operands& operands, const ShardOperands& shards, Stream stream);
};

}  // namespace jitgemm
