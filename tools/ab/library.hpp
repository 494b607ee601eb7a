#pragma once

#include <cstddef>

/// What tools/ab asks of one build of the library: a C interface, so that two builds serve one process. library.cpp
/// implements it on the public headers, and is compiled once against each tree.
extern "C" {

struct AbProblem {
  long long m, n, k;
  const char *type, *type_d;        ///< of A and B, and of D: names of DataType
  const char *layout_a, *layout_b;  ///< of Layout
  const char* accumulation;         ///< of Accumulation
};

struct AbOperands {
  const void *a, *b;
  void* d;
  void* workspace;
  std::size_t workspace_bytes;
};

/// Functions that can fail return null or false, and error() says why, to the thread that called.
struct AbLibrary {
  const char* (*version)();
  const char* (*error)();
  /// A Context that measures nothing. `device`: cuda or emulator.
  void* (*open)(const char* device, const char* cache_dir);
  void (*close)(void* context);
  /// The cost model's choice as text.
  bool (*choose)(void* context, const AbProblem* problem, char* config, std::size_t bytes);
  /// A call with this configuration, or if it is empty with the library's choice; compiled.
  void* (*prepare)(void* context, const AbProblem* problem, const char* config);
  void (*forget)(void* call);
  std::size_t (*workspace_size)(void* call);
  bool (*gemm)(void* call, const AbOperands* operands, void* stream);
};

/// Of the two libraries that tools/ab/build.sh links.
const AbLibrary* jitgemm_ab_old();
const AbLibrary* jitgemm_ab_new();
}
