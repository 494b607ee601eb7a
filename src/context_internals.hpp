#pragma once

#include "jit/call.hpp"

namespace jitgemm {

class Backend;
class Chooser;
class Context;

/// For what measures and checks a Context, or is made of one: the parts that its users do without.
struct ContextInternals {
  /// What its calls run on. Lives as long as the Context, and stays the same when that is moved.
  static Backend& backend(const Context& context);
  static KernelStore& store(const Context& context);  ///< of its kernels
  static Chooser& chooser(const Context& context);    ///< of their configurations
  /// Compiles and loads what gemm() would run with this configuration and operands that are aligned as the problem
  /// says, so that gemm() itself does not.
  static void make_ready(const Context& context, const Problem& problem, const KernelConfig& config);
  /// Compiles what tuning the problem checks results by, into the cache.
  static void warm_check(const Context& context, const Problem& problem);

  // Of problems of several ranks.
  static Ready make_sharded_ready(const Context& context, const NormalProblem& problem, const KernelConfig& config);
  static void launch_sharded(const Context& context, const Ready& ready, const NormalProblem& problem,
                             const Operands& operands, const ShardOperands& shards, Stream stream);
};

}  // namespace jitgemm
