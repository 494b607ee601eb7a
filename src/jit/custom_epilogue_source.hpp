#pragma once

#include <string>

#include "jitgemm/epilogue.hpp"

namespace jitgemm {

/// The caller's function as a part of a kernel, with what connects it to its operands. Its lines are numbered as
/// those of to_string(function), in a file "epilogue".
std::string custom_epilogue_source(const EpilogueFunction& function, DataType compute);

/// The function alone, as a translation unit with one function jitgemm_epilogue() that a compiler keeps.
std::string custom_epilogue_alone(const EpilogueFunction& function, DataType compute);

}  // namespace jitgemm
