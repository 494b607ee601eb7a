#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>

#include "contexts.hpp"
#include "jitgemm/plan.hpp"

namespace jitgemm::python {

// Each adds its subject to the module.
void bind_problem(nb::module_& module);
void bind_plan(nb::module_& module);     // after bind_problem()
void bind_context(nb::module_& module);  // after bind_plan()
void bind_epilogue(nb::module_& module);
void bind_matmul(nb::module_& module);           // after bind_epilogue(), too
void bind_matrix_pointers(nb::module_& module);  // before bind_matmul(), which takes them
void bind_tensor_parallel(nb::module_& module);
void bind_cache(nb::module_& module);  // after bind_context(), whose types it shows

/// Of None, True (a bar) or a function of (done, total): what tune() calls. Ends the measurement at Ctrl-C.
std::function<void(int, int)> progress_of(nb::handle progress);

// With Python's lock released.
std::string source_of(ContextHandle& context, const Problem& problem, const std::optional<KernelConfig>& config);
Plan plan_of(ContextHandle& context, const Problem& problem, const std::optional<KernelConfig>& config, bool compiled);
TuneReport tune(ContextHandle& context, const Problem& problem, nb::handle progress);

}  // namespace jitgemm::python
