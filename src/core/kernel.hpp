#pragma once

#include <string>

namespace jitgemm {

/// Generated kernel source: a self-contained text, and all that decides what it compiles to.
struct KernelSource {
  std::string text;
  std::string entry;         ///< name of the kernel function
  std::string architecture;  ///< "sm_90a"; the emulator compiles the same text, its binaries have a key of their own
  std::string config;        ///< to_string(KernelConfig), for messages
  /// What a compiler is to look at first: the caller's own function alone, for its own errors; empty without one.
  std::string custom_epilogue_alone = {};
};

/// What a compiler made of a KernelSource.
struct KernelBinary {
  std::string code;  ///< a cubin, or the emulator's shared object
  std::string entry;
  std::string architecture;
  std::string compiler;  ///< name and version: "nvrtc 13.0.88", "g++ 12.2.0"
  int registers = 0;     ///< a thread; 0 on the emulator
  int spill_bytes = 0;   ///< stores and loads to local memory
  int static_smem_bytes = 0;
};

}  // namespace jitgemm
