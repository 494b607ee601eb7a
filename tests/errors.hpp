#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "jitgemm/error.hpp"

namespace jitgemm::test {

template <typename Call>
std::optional<Error> error_if_any(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// Of a call that must throw one.
template <typename Call>
Error error_of(Call&& call) {
  if (const std::optional<Error> error = error_if_any(call)) return *error;
  throw std::runtime_error("no Error was thrown");
}

/// What an Error of this code says; empty if there is none. One of another code passes through.
template <typename Call>
std::string refusal(ErrorCode code, Call&& call) {
  const std::optional<Error> error = error_if_any(call);
  if (error && error->code() != code) throw *error;
  return error ? error->what() : "";
}

}  // namespace jitgemm::test
