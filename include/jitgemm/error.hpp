#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "jitgemm/export.hpp"

namespace jitgemm {

enum class ErrorCode : std::uint8_t {
  invalid_problem,  ///< sizes, types, leading dimensions or scalars that no kernel can serve
  invalid_operand,  ///< a pointer that is null, misaligned, of the wrong memory, or overlaps
  invalid_config,   ///< a KernelConfig that is not legal for the problem or the device
  invalid_option,   ///< a ContextOptions field or environment variable that makes no sense
  no_device,        ///< no driver or no usable device
  no_compiler,      ///< NVRTC (or, for the emulator, a C++ compiler) is missing
  compile_failed,   ///< the generated source does not compile; log() is the compiler's
  load_failed,      ///< the driver refuses the kernel
  launch_failed,    ///< the driver refuses the launch, or an earlier one on this context failed
  out_of_memory,    ///< on the device or the host
  workspace_too_small,
  not_capturable,       ///< the call needs something that stream capture forbids
  io,                   ///< a file that the caller named cannot be read or written
  emulator_fault,       ///< the emulator caught a race, a hang or a bad access; log() says where
  internal,             ///< a bug of this library
  peer_lost,            ///< another rank did not answer in time, or is gone
  communicator_failed,  ///< NCCL says so, or abort() was called
};

JITGEMM_EXPORT std::string to_string(ErrorCode code);

/// The one type that jitgemm throws. what() is one line that ends with the way out. Making or copying one with texts
/// takes memory, as of any exception with a text; the library's own about the host's memory takes none.
class JITGEMM_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);  ///< control characters become spaces

  ErrorCode code() const { return code_; }

  // Where they apply, else empty.
  const std::string& problem() const { return problem_; }  ///< to_string(Problem)
  const std::string& config() const { return config_; }    ///< to_string(KernelConfig)
  const std::string& call() const { return call_; }        ///< the failed driver or compiler call
  const std::string& log() const { return log_; }          ///< the compiler's or the emulator's, may be many lines

  Error& with_problem(std::string text) { return problem_ = std::move(text), *this; }
  Error& with_config(std::string text) { return config_ = std::move(text), *this; }
  Error& with_call(std::string text) { return call_ = std::move(text), *this; }
  Error& with_log(std::string text) { return log_ = std::move(text), *this; }

 private:
  ErrorCode code_;
  std::string problem_, config_, call_, log_;
};

}  // namespace jitgemm
