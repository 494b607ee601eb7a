#pragma once

namespace jitgemm {

class Backend;
class Context;
struct Problem;

/// For what measures and checks a Context: the parts that its users do without.
struct ContextInternals {
  /// What its calls run on. Lives as long as the Context, and stays the same when that is moved.
  static Backend& backend(const Context& context);
  /// Compiles what tuning the problem checks results by, into the cache.
  static void warm_check(const Context& context, const Problem& problem);
};

}  // namespace jitgemm
