#pragma once

#include <array>
#include <string_view>

namespace jitgemm {

/// In the order of MainLoop.
inline constexpr std::array<std::string_view, 2> main_loop_names{"sm80", "sm90"};

}  // namespace jitgemm
