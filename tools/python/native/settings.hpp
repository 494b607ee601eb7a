#pragma once

#include <optional>
#include <string_view>

#include "array.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm::python {

// What a call says besides its arrays. `what` is the argument's name; TypeError and ValueError are thrown for what is
// none.

/// The text of a string; `choices` says which there are.
std::string_view text_of(nb::handle text, const char* what, const char* choices);
Activation activation_of(nb::handle activation);
Accumulation accumulation_of(nb::handle accumulation);
/// Whether f32 operands of this type are rounded to tf32.
bool is_tf32(nb::handle precision, const ArrayType& type);

/// Of an operand that may be a number instead of an array: what it multiplies the product by.
bool is_number(nb::handle value);
/// TypeError for what is no number, and for tensors.
double number_of(nb::handle value, const char* what);

/// Of a configuration's text; nullopt of None.
std::optional<KernelConfig> config_of(nb::handle config);

DataType data_type_of(nb::handle dtype, const char* what);

}  // namespace jitgemm::python
