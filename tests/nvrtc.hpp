#pragma once

#include <memory>
#include <string>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm::test {

/// What compiles for such a device with NVRTC; null where there is no NVRTC.
inline std::unique_ptr<Backend> nvrtc_for(const std::string& architecture = "sm_90a") {
  auto backend = make_compile_only_backend(architecture);
  try {
    backend->compiler_version();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_compiler) throw;
    return nullptr;
  }
  return backend;
}

inline constexpr const char* no_nvrtc = "no NVRTC: tools/bootstrap.sh installs it";

/// Compiles the kernel, which throws where ptxas makes wgmma synchronous.
inline void check_spills_nothing(Backend& nvrtc, const NormalProblem& problem, const KernelConfig& config) {
  CAPTURE(to_string(config), to_string(problem));
  const KernelBinary binary = nvrtc.compile(generate(problem, config, nvrtc.device()));
  CHECK(binary.registers > 0);
  CHECK(binary.spill_bytes == 0);
}

}  // namespace jitgemm::test
