#pragma once

#include <nvrtc.h>

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/compiler_kind.hpp"
#include "core/kernel.hpp"

namespace jitgemm::cuda {

/// NVRTC's functions, found at run time. Plain pointers: a test puts functions of its own in.
struct NvrtcApi {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetErrorString) get_error_string = nullptr;
  decltype(&nvrtcCreateProgram) create_program = nullptr;
  decltype(&nvrtcDestroyProgram) destroy_program = nullptr;
  decltype(&nvrtcCompileProgram) compile_program = nullptr;
  decltype(&nvrtcGetProgramLogSize) get_program_log_size = nullptr;
  decltype(&nvrtcGetProgramLog) get_program_log = nullptr;
  decltype(&nvrtcGetCUBINSize) get_cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) get_cubin = nullptr;
  decltype(&nvrtcGetPTXSize) get_ptx_size = nullptr;
  decltype(&nvrtcGetPTX) get_ptx = nullptr;

  std::string name;  ///< "nvrtc 13.0.88"
};

/// Names for dlopen, best first: JITGEMM_NVRTC alone (a library, or a folder with one, such as a pip wheel's) if set,
/// else by version what the loader, CUDA_HOME and /usr/local/cuda have. Throws Error{invalid_option} if JITGEMM_NVRTC
/// leads nowhere.
std::vector<std::string> nvrtc_libraries();

/// Finds every function by its name. Throws Error{no_compiler} for a library that is no NVRTC, or too old.
NvrtcApi bind_nvrtc(const std::function<void*(const char* name)>& symbol, const std::string& library);

/// Throws Error{no_compiler} if none of the libraries can be used.
NvrtcApi load_nvrtc(const std::vector<std::string>& libraries);

/// "nvrtc 13.0.88", as precise as the library says it. Throws Error if it cannot even name its version.
std::string exact_name(const NvrtcApi& api);

/// The process's NVRTC, loaded on first need and never unloaded.
const NvrtcApi& nvrtc();

/// What nvrtc() answers instead while it is not null, as in tests only.
extern std::atomic<const NvrtcApi*> nvrtc_for_tests;

/// A cubin for source.architecture exactly. Throws Error{compile_failed} with the log, also when ptxas reports that it
/// gave up wgmma's asynchrony or setmaxnreg (C75xx). Thread-safe, and threads compile side by side.
KernelBinary compile(const NvrtcApi& api, const KernelSource& source);

/// The PTX on the way to that cubin. Throws Error{compile_failed} with the log.
std::string ptx_of(const NvrtcApi& api, const KernelSource& source);

/// What ptxas says of a kernel with -v.
struct PtxasInfo {
  int registers = 0, spill_bytes = 0, static_smem_bytes = 0;
};
PtxasInfo parse_ptxas_info(std::string_view log);

}  // namespace jitgemm::cuda
