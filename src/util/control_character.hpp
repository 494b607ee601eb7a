#pragma once

namespace jitgemm {

/// Of ASCII: what would steer a terminal that shows it, or break a line.
constexpr bool is_control_character(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

}  // namespace jitgemm
