#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace jitgemm {

/// A callable that is passed down and called before the call returns: unlike std::function it owns nothing and never
/// allocates. What it refers to has to outlive it.
template <typename Signature>
class FunctionRef;

template <typename Result, typename... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <typename Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef> &&
             std::is_invocable_r_v<Result, Callable&, Arguments...>)
  FunctionRef(Callable&& callable) noexcept
      : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* called, Arguments... arguments) -> Result {
          return static_cast<Result>(
              (*static_cast<std::remove_reference_t<Callable>*>(called))(std::forward<Arguments>(arguments)...));
        }) {}

  Result operator()(Arguments... arguments) const { return call_(callable_, std::forward<Arguments>(arguments)...); }

 private:
  void* callable_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace jitgemm
