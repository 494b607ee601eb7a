#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace jitgemm::python {

/// Lets nanobind turn jitgemm::Error into Python's own exceptions: ValueError for wrong input, MemoryError, OSError for
/// files, else RuntimeError. They have the attributes code, problem, config, call and log, as jitgemm::Error has them.
void register_errors(nanobind::module_& module);

[[noreturn]] void refuse_value(const std::string& why);  ///< ValueError

}  // namespace jitgemm::python
