#pragma once

#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "backend/cuda/nvrtc.hpp"

namespace jitgemm::test {

/// An NVRTC that takes every text, makes a cubin for FakeGpu of it, and keeps books on its programs.
struct FakeNvrtc {
  struct Program {
    bool compiled = false, transposed = false, packs = false, checks = false;
  };
  static inline std::mutex mutex;
  static inline std::set<const Program*> alive;

  static void reset() {
    for (const Program* program : alive) delete program;
    alive.clear();
  }

  static const char* log_of(nvrtcProgram program) {
    return reinterpret_cast<Program*>(program)->compiled
               ? "ptxas info    : 0 bytes gmem\nptxas info    : Used 96 registers, 0 bytes spill stores, 0 bytes spill "
                 "loads\n"
               : "kernel.cu(7): error: identifier \"made_to_fail\" is undefined\n1 error detected\n";
  }
  static constexpr char cubin[] =
      "\x7f"
      "ELF, computes D  ";
  static constexpr char transposing_cubin[] =
      "\x7f"
      "ELF, computes D^T";
  static constexpr char packing_cubin[] =
      "\x7f"
      "ELF, packs A, B  ";
  static constexpr char checking_cubin[] =
      "\x7f"
      "ELF, checks D    ";
  static_assert(sizeof cubin == sizeof transposing_cubin && sizeof cubin == sizeof packing_cubin &&
                sizeof cubin == sizeof checking_cubin);
  static constexpr char ptx[] = "// Cuda compilation tools, release 12.4, V12.4.131\n";

  static cuda::NvrtcApi api() {
    cuda::NvrtcApi api;
    api.name = "nvrtc 12.4.131";
    api.version = [](int* major, int* minor) { return *major = 12, *minor = 4, NVRTC_SUCCESS; };
    api.get_error_string = [](nvrtcResult result) {
      switch (result) {
        case NVRTC_ERROR_OUT_OF_MEMORY:
          return "NVRTC_ERROR_OUT_OF_MEMORY";
        case NVRTC_ERROR_INVALID_OPTION:
          return "NVRTC_ERROR_INVALID_OPTION";
        case NVRTC_ERROR_COMPILATION:
          return "NVRTC_ERROR_COMPILATION";
        case NVRTC_ERROR_BUILTIN_OPERATION_FAILURE:
          return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE";
        case NVRTC_ERROR_INTERNAL_ERROR:
          return "NVRTC_ERROR_INTERNAL_ERROR";
        default:
          return "NVRTC_ERROR_OTHER";
      }
    };
    api.create_program = [](nvrtcProgram* program, const char* source, const char*, int, const char* const*,
                            const char* const*) {
      auto* const made = new Program{.transposed = std::strstr(source, "SWAP_AB = true") != nullptr,
                                     .packs = std::strstr(source, "PackArguments arguments") != nullptr,
                                     .checks = std::strstr(source, "CheckArguments arguments") != nullptr};
      const std::lock_guard lock(mutex);
      alive.insert(made);
      *program = reinterpret_cast<nvrtcProgram>(made);
      return NVRTC_SUCCESS;
    };
    api.destroy_program = [](nvrtcProgram* program) {
      const std::lock_guard lock(mutex);
      const auto* const made = reinterpret_cast<const Program*>(*program);
      if (alive.erase(made) == 0) return NVRTC_ERROR_INVALID_PROGRAM;
      delete made;
      *program = nullptr;
      return NVRTC_SUCCESS;
    };
    api.compile_program = [](nvrtcProgram program, int, const char* const*) {
      reinterpret_cast<Program*>(program)->compiled = true;
      return NVRTC_SUCCESS;
    };
    api.get_program_log_size = [](nvrtcProgram program, std::size_t* size) {
      return *size = std::strlen(log_of(program)) + 1, NVRTC_SUCCESS;
    };
    api.get_program_log = [](nvrtcProgram program, char* out) {
      return std::strcpy(out, log_of(program)), NVRTC_SUCCESS;
    };
    api.get_cubin_size = [](nvrtcProgram, std::size_t* size) { return *size = sizeof cubin, NVRTC_SUCCESS; };
    api.get_cubin = [](nvrtcProgram program, char* out) {
      const auto* const made = reinterpret_cast<const Program*>(program);
      const char* const code = made->packs        ? packing_cubin
                               : made->checks     ? checking_cubin
                               : made->transposed ? transposing_cubin
                                                  : cubin;
      return std::memcpy(out, code, sizeof cubin), NVRTC_SUCCESS;
    };
    api.get_ptx_size = [](nvrtcProgram, std::size_t* size) { return *size = sizeof ptx, NVRTC_SUCCESS; };
    api.get_ptx = [](nvrtcProgram, char* out) { return std::memcpy(out, ptx, sizeof ptx), NVRTC_SUCCESS; };
    return api;
  }
};

}  // namespace jitgemm::test
