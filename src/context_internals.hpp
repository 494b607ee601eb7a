#pragma once

namespace jitgemm {

class Backend;
class Context;

/// For what measures and checks a Context: the parts that its users do without.
struct ContextInternals {
  /// What its calls run on. Lives as long as the Context, and stays the same when that is moved.
  static Backend& backend(const Context& context);
};

}  // namespace jitgemm
