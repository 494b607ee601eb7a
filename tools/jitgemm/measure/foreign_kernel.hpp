#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

#include "jitgemm/types.hpp"

namespace jitgemm {
class Backend;
}

namespace jitgemm::cli {

/// A kernel that is not the library's: of a module of its own in the current CUDA context, launched by the plain driver
/// API with no attribute, so that it neither starts early nor lets others.
class ForeignKernel {
 public:
  /// Compiled for the backend's device. smem_bytes: dynamic shared memory of a block.
  ForeignKernel(Backend& backend, const std::string& text, const std::string& entry, std::size_t smem_bytes = 0);
  ~ForeignKernel();
  ForeignKernel(const ForeignKernel&) = delete;
  ForeignKernel& operator=(const ForeignKernel&) = delete;

  /// parameters: pointers to the kernel's arguments, in their order.
  void launch(int blocks, int threads, void** parameters, Stream stream) const;

 private:
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  std::size_t smem_bytes_;
};

}  // namespace jitgemm::cli
