#pragma once

#include <string>
#include <string_view>

namespace jitgemm::cli {

/// What a launch that is timed stands beside, and how it comes to the device.
struct Protocol {
  bool mix = false;    ///< a kernel of someone else's between any two launches; else launches of one arm back to back
  bool large = false;  ///< and a long one; of mix
  bool eager = false;  ///< put on a stream; else a graph's replay

  bool operator==(const Protocol&) const = default;
};

/// "rep", "mix", "mix large", "rep eager", ...
std::string to_string(const Protocol& protocol);
/// The inverse. Throws Error{io}.
Protocol parse_protocol(std::string_view text);

}  // namespace jitgemm::cli
