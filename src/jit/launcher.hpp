#pragma once

#include <functional>

#include "jit/kernel_store.hpp"
#include "kernels/launch_shape.hpp"

namespace jitgemm {

/// The scratch of one call: LaunchShape::workspace_bytes() bytes, 256-byte aligned. Counters are zero before and after
/// it.
struct Workspace {
  void* memory = nullptr;
  unsigned* counters = nullptr;
};

/// Fills the GEMM kernel's arguments from a normalised problem, its shape and its operands. Encodes TMA descriptors
/// through `tensor_map`, which may remember them.
device::Arguments make_arguments(const Problem& problem, const KernelConfig& config, const LaunchShape& shape,
                                 const Operands& operands, const Workspace& workspace,
                                 const std::function<device::TensorMap(const TensorMapSpec&)>& tensor_map);

/// The kernels of a call; `packing` is null when the configuration packs nothing.
struct CallKernels {
  std::shared_ptr<const Kernel> packing, gemm;
};
CallKernels get_kernels(KernelStore& store, const Problem& problem, const KernelConfig& config,
                        const LaunchShape& shape, const DeviceInfo& device);

/// The arguments of a launch's kernels.
struct CallArguments {
  device::PackArguments packing;
  device::Arguments gemm;
};

/// The launches of a call, in order: one, or of packed operands beyond max_packed_bytes one a slab of D. Each is handed
/// to `launch`.
void for_each_launch(const Problem& problem, const KernelConfig& config, const LaunchShape& shape,
                     const Operands& operands, const Workspace& workspace,
                     const std::function<device::TensorMap(const TensorMapSpec&)>& tensor_map,
                     const std::function<void(const LaunchShape&, const CallArguments&)>& launch);

/// Enqueues the kernels of a launch, one after the other; `packing` may be null.
void launch_kernels(Backend& backend, const Kernel* packing, const Kernel& gemm, const LaunchShape& shape,
                    const CallArguments& arguments, Stream stream);

}  // namespace jitgemm
