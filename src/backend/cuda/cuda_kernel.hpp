#pragma once

#include <memory>

#include "backend/backend.hpp"
#include "backend/cuda/captured_start.hpp"
#include "backend/cuda/device_context.hpp"

namespace jitgemm::cuda {

/// A kernel in a module of its own. `context` and `triggers`, of those that trigger early, outlive it.
struct CudaKernel final : LoadedKernel {
  CudaKernel(const DeviceContext& its_context, EarlyTriggers* its_triggers)
      : context(its_context), triggers(its_triggers) {}
  ~CudaKernel() override;

  const DeviceContext& context;
  EarlyTriggers* triggers;  // null: it is none of them
  CUmodule module = nullptr;
  CUfunction function = nullptr;
};

/// In the current context. Throws Error{load_failed}, and Error{not_capturable} where a capture forbids it.
std::unique_ptr<CudaKernel> load_kernel(const DeviceContext& context, EarlyTriggers* triggers,
                                        const KernelBinary& binary, std::size_t smem_bytes);

}  // namespace jitgemm::cuda
