#pragma once

#include <string>

#include "c_context.hpp"
#include "catch.hpp"

namespace jitgemm::test {

/// The message of a call that must end so, on one line with a way out.
inline std::string refused(jitgemm_status expected, jitgemm_status status) {
  const std::string message = jitgemm_last_error_message();
  INFO(jitgemm_status_name(status) << ": " << message);
  CHECK(status == expected);
  CHECK(jitgemm_last_error_status() == expected);
  CHECK(message.find('\n') == std::string::npos);
  CHECK((message.find(": ") != std::string::npos || message.find("; ") != std::string::npos));
  return message;
}
inline std::string invalid_argument(jitgemm_status status) { return refused(JITGEMM_STATUS_INVALID_ARGUMENT, status); }

inline jitgemm_problem new_problem() { return made_by<jitgemm_problem>(jitgemm_problem_init); }
inline jitgemm_config new_config() { return made_by<jitgemm_config>(jitgemm_config_init); }

inline std::string text(const jitgemm_problem& problem) {
  return line_of([&](char* b, std::size_t c, std::size_t* n) { return jitgemm_problem_to_string(&problem, b, c, n); });
}
inline std::string text(const jitgemm_config& config) {
  return line_of([&](char* b, std::size_t c, std::size_t* n) { return jitgemm_config_to_string(&config, b, c, n); });
}

}  // namespace jitgemm::test
