#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

}  // namespace

Error::Error(ErrorCode code, const std::string& message) : std::runtime_error(one_line(message)), code_(code) {}

std::string to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_problem:
      return "invalid_problem";
    case ErrorCode::invalid_operand:
      return "invalid_operand";
    case ErrorCode::invalid_config:
      return "invalid_config";
    case ErrorCode::invalid_option:
      return "invalid_option";
    case ErrorCode::no_device:
      return "no_device";
    case ErrorCode::no_compiler:
      return "no_compiler";
    case ErrorCode::compile_failed:
      return "compile_failed";
    case ErrorCode::load_failed:
      return "load_failed";
    case ErrorCode::launch_failed:
      return "launch_failed";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::workspace_too_small:
      return "workspace_too_small";
    case ErrorCode::not_capturable:
      return "not_capturable";
    case ErrorCode::io:
      return "io";
    case ErrorCode::emulator_fault:
      return "emulator_fault";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

}  // namespace jitgemm
