#include "jitgemm/error.hpp"

#include "core/error_names.hpp"
#include "core/out_of_memory.hpp"

namespace jitgemm {
namespace {

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

/// Made while there is memory. Copies share its text, so that throwing one takes none. Never destroyed: threads may
/// throw while the process ends.
const Error& prepared =
    *new Error(ErrorCode::out_of_memory, "out of host memory; free some, or raise the limit on it (ulimit -v)");

}  // namespace

void throw_out_of_memory() { throw Error(prepared); }
const Error& out_of_memory_error() noexcept { return prepared; }

bool is_out_of_memory(const std::exception& error) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return true;
  const auto* const ours = dynamic_cast<const Error*>(&error);
  return ours && ours->code() == ErrorCode::out_of_memory;
}

Error::Error(ErrorCode code, const std::string& message) : std::runtime_error(one_line(message)), code_(code) {}

const char* name_of(ErrorCode code) noexcept {
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
    case ErrorCode::peer_lost:
      return "peer_lost";
    case ErrorCode::communicator_failed:
      return "communicator_failed";
  }
  return "unknown";
}

std::string to_string(ErrorCode code) {
  return with_memory_errors([code] { return std::string(name_of(code)); });
}

}  // namespace jitgemm
