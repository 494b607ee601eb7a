#pragma once

#include <limits>
#include <string>

#include "catch.hpp"
#include "core/problem.hpp"
#include "errors.hpp"

namespace jitgemm::test {

// Values that only some fields of a problem may have.
inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
inline constexpr std::int64_t largest_size = 0x7fffffff;

/// What a call's Error says of a problem, on one line; "no error" if there is none.
template <typename Call>
std::string problem_refusal(ErrorCode code, Call&& call) {
  const std::optional<Error> error = error_if_any(call);
  if (!error) return "no error";
  CHECK(to_string(error->code()) == to_string(code));
  CHECK_FALSE(error->problem().empty());
  CHECK(std::string(error->what()).find('\n') == std::string::npos);
  return error->what();
}

/// The same of normalising it.
inline std::string problem_refusal(const Problem& problem) {
  return problem_refusal(ErrorCode::invalid_problem, [&problem] { normalise(problem); });
}

}  // namespace jitgemm::test
