#pragma once

#include "jitgemm/error.hpp"

namespace jitgemm {

/// to_string() without the memory that it takes.
const char* name_of(ErrorCode code) noexcept;

}  // namespace jitgemm
