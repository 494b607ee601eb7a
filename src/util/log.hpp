#pragma once

#include <spdlog/spdlog.h>

#include <optional>
#include <string>
#include <string_view>

namespace jitgemm {

/// The library's logger: stderr, level from JITGEMM_LOG (trace, debug, info, warn, error, off), warn by default.
spdlog::logger& logger();

/// nullopt for a text that is none of the six levels.
std::optional<spdlog::level::level_enum> parse_log_level(std::string_view text);

/// Logs a warning the first time that this key is seen in the process.
void warn_once(const std::string& key, const std::string& message);

}  // namespace jitgemm
