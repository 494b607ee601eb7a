#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace jitgemm {

// Numbers as text that is the same in every locale. Streams, printf() and strtod() follow the application's: they write
// "1.500" for 1500 or "0,5" for 0.5, and read as much.

/// As printf's %.*f.
std::string fixed_text(double x, int decimals);
/// As printf's %.*g.
std::string general_text(double x, int digits);
/// All of the text, as strtod() reads it in the "C" locale but without leading space, sign + or 0x.
std::optional<double> parse_double(std::string_view text);

}  // namespace jitgemm
