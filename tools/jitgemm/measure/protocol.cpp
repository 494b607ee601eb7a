#include "measure/protocol.hpp"

#include <fmt/core.h>

#include "jitgemm/error.hpp"

namespace jitgemm::cli {

std::string to_string(const Protocol& protocol) {
  std::string text = protocol.mix ? "mix" : "rep";
  if (protocol.mix && protocol.large) text += " large";
  if (protocol.eager) text += " eager";
  return text;
}

Protocol parse_protocol(std::string_view text) {
  for (const bool mix : {false, true}) {
    for (const bool large : {false, true}) {
      for (const bool eager : {false, true}) {
        const Protocol protocol{.mix = mix, .large = large, .eager = eager};
        if (mix >= large && to_string(protocol) == text) return protocol;
      }
    }
  }
  throw Error(ErrorCode::io,
              fmt::format("\"{}\" is no protocol, which is rep, mix or mix large, each also eager", text));
}

}  // namespace jitgemm::cli
