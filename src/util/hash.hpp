#pragma once

#include <string>
#include <string_view>

namespace jitgemm {

/// XXH3-128 as 32 hex digits.
std::string digest_of(std::string_view bytes);

}  // namespace jitgemm
