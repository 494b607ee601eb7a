#pragma once

#include "catch.hpp"
#include "errors.hpp"

namespace jitgemm::test {

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

}  // namespace jitgemm::test
