#pragma once

#include <functional>

#include "core/launch_shape.hpp"
#include "jit/kernel_store.hpp"

namespace jitgemm {

/// The scratch of one launch. Counters are zero before and after it.
struct Workspace {
  void* partials = nullptr;
  unsigned* counters = nullptr;
};

/// Fills the kernel's arguments from a normalised problem, its shape and its operands. Encodes TMA descriptors through
/// `tensor_map`, which may remember them.
device::Arguments make_arguments(const Problem& problem, const KernelConfig& config, const LaunchShape& shape,
                                 const Operands& operands, const Workspace& workspace,
                                 const std::function<device::TensorMap(const TensorMapSpec&)>& tensor_map);

}  // namespace jitgemm
