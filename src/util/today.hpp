#pragma once

#include <ctime>
#include <string>

namespace jitgemm {

/// In UTC: "2026-11-21".
inline std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

}  // namespace jitgemm
