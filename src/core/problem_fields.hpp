#pragma once

#include <string_view>
#include <type_traits>
#include <utility>

#include "core/activations.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// A field of Problem by its name in texts.
struct ProblemField {
  std::string_view name;
  bool always_written = false;  // in texts, even with its default
  // Of a scalar.
  bool (*applies)(const Problem&) = [](const Problem&) { return true; };  // else it counts as its default
  bool signed_zero = false;                                               // -0 and 0 are two values
  bool may_be_nan = true;
  bool absent_if_zero = false;  // and its kernels have no code for it: NONZERO in templates/gemm.cu.in
};

/// Calls visit(field, member) for each field, in the order of texts; member(problem) is the field itself, so that any
/// number of problems can be walked together. What holds for all fields - equality, hash, texts, JSON, the parser, the
/// fuzzers' words - is written with it. A `double` is a scalar on its way to the kernel, see for_each_scalar().
template <typename Visit>
constexpr void for_each_field(Visit&& visit) {
  visit(ProblemField{"m", true}, [](auto& p) -> auto& { return p.m; });
  visit(ProblemField{"n", true}, [](auto& p) -> auto& { return p.n; });
  visit(ProblemField{"k", true}, [](auto& p) -> auto& { return p.k; });
  visit(ProblemField{"a", true}, [](auto& p) -> auto& { return p.a.type; });
  visit(ProblemField{"b", true}, [](auto& p) -> auto& { return p.b.type; });
  visit(ProblemField{"c"}, [](auto& p) -> auto& { return p.c.type; });
  visit(ProblemField{"d", true}, [](auto& p) -> auto& { return p.d.type; });
  visit(ProblemField{"layout_a"}, [](auto& p) -> auto& { return p.a.layout; });
  visit(ProblemField{"layout_b"}, [](auto& p) -> auto& { return p.b.layout; });
  visit(ProblemField{"layout_c"}, [](auto& p) -> auto& { return p.c.layout; });
  visit(ProblemField{"layout_d"}, [](auto& p) -> auto& { return p.d.layout; });
  visit(ProblemField{"lda"}, [](auto& p) -> auto& { return p.a.ld; });
  visit(ProblemField{"ldb"}, [](auto& p) -> auto& { return p.b.ld; });
  visit(ProblemField{"ldc"}, [](auto& p) -> auto& { return p.c.ld; });
  visit(ProblemField{"ldd"}, [](auto& p) -> auto& { return p.d.ld; });
  visit(ProblemField{"batch"}, [](auto& p) -> auto& { return p.batch; });
  visit(ProblemField{"stride_a"}, [](auto& p) -> auto& { return p.a.stride; });
  visit(ProblemField{"stride_b"}, [](auto& p) -> auto& { return p.b.stride; });
  visit(ProblemField{"stride_c"}, [](auto& p) -> auto& { return p.c.stride; });
  visit(ProblemField{"stride_d"}, [](auto& p) -> auto& { return p.d.stride; });
  visit(ProblemField{"alpha"}, [](auto& p) -> auto& { return p.alpha; });
  visit(ProblemField{.name = "beta", .absent_if_zero = true}, [](auto& p) -> auto& { return p.beta; });
  visit(ProblemField{"bias"}, [](auto& p) -> auto& { return p.epilogue.bias; });
  visit(ProblemField{"activation"}, [](auto& p) -> auto& { return p.epilogue.activation; });
  constexpr auto takes_slope = [](const Problem& p) { return info_of(p.epilogue.activation).takes_slope; };
  visit(ProblemField{.name = "slope", .applies = takes_slope, .signed_zero = true, .may_be_nan = false},
        [](auto& p) -> auto& { return p.epilogue.slope; });
  visit(ProblemField{"epilogue"}, [](auto& p) -> auto& { return p.epilogue.function; });
  visit(ProblemField{"accumulation"}, [](auto& p) -> auto& { return p.accumulation; });
  visit(ProblemField{"grouping"}, [](auto& p) -> auto& { return p.grouping; });
  visit(ProblemField{"expected_m"}, [](auto& p) -> auto& { return p.expected_m; });
  visit(ProblemField{"scaling_a"}, [](auto& p) -> auto& { return p.a.scaling; });
  visit(ProblemField{"scaling_b"}, [](auto& p) -> auto& { return p.b.scaling; });
  visit(ProblemField{"scaling_c"}, [](auto& p) -> auto& { return p.c.scaling; });
  visit(ProblemField{"scaling_d"}, [](auto& p) -> auto& { return p.d.scaling; });
  visit(ProblemField{"batch_mode_a"}, [](auto& p) -> auto& { return p.a.batch_mode; });
  visit(ProblemField{"batch_mode_b"}, [](auto& p) -> auto& { return p.b.batch_mode; });
  visit(ProblemField{"batch_mode_c"}, [](auto& p) -> auto& { return p.c.batch_mode; });
  visit(ProblemField{"batch_mode_d"}, [](auto& p) -> auto& { return p.d.batch_mode; });
  visit(ProblemField{"align_a"}, [](auto& p) -> auto& { return p.a.alignment; });
  visit(ProblemField{"align_b"}, [](auto& p) -> auto& { return p.b.alignment; });
  visit(ProblemField{"align_c"}, [](auto& p) -> auto& { return p.c.alignment; });
  visit(ProblemField{"align_d"}, [](auto& p) -> auto& { return p.d.alignment; });
}

/// The fields of type double alone. The kernel gets them in the accumulator's type, as templates/types.cuh's Scalars,
/// which have the same order. Rounding, defaults, shape_of(), the kernel's arguments and constants are written with it.
template <typename Visit>
constexpr void for_each_scalar(Visit&& visit) {
  for_each_field([&visit](const ProblemField& field, auto member) {
    if constexpr (std::is_same_v<decltype(member(std::declval<Problem&>())), double&>) visit(field, member);
  });
}

/// Whether a field has the same value; all NaN are one.
template <typename T>
constexpr bool same_value(const T& x, const T& y) {
  return x == y || (x != x && y != y);
}

}  // namespace jitgemm
