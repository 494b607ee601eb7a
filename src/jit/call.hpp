#pragma once

#include <string_view>

#include "jit/arguments.hpp"
#include "jit/kernel_store.hpp"
#include "util/fixed_list.hpp"
#include "util/function_ref.hpp"

namespace jitgemm {

inline constexpr std::size_t most_kernels = 4;  // of a call

/// One launch: a kernel, its grid, and the struct that it takes.
class Step {
 public:
  Step() {}  // no zeroes where the arguments will be

  const Kernel* kernel = nullptr;
  LaunchGrid grid;

  ArgumentBytes arguments() const { return {bytes_, size_}; }

  /// What `make` returns is made in place.
  template <typename Make>
  auto& set_arguments(Make&& make) {
    using Arguments = decltype(make());
    static_assert(std::is_trivially_copyable_v<Arguments>);
    static_assert(sizeof(Arguments) <= sizeof(bytes_) && alignof(Arguments) <= alignof(device::TensorMap));
    size_ = sizeof(Arguments);
    return *::new (static_cast<void*>(bytes_)) Arguments(make());
  }

 private:
  std::size_t size_ = 0;
  alignas(device::TensorMap) std::byte bytes_[2048];
};

/// A part of D and what it is computed from: all of it, or one slab of several, whose packed operands take turns in the
/// workspace.
struct Part {
  const NormalProblem& whole;    ///< of all parts
  const NormalProblem& problem;  ///< this one
  const KernelConfig& config;
  const LaunchShape& shape;
  const Operands& operands;
  const Workspace& workspace;
  const EncodeTensorMap& encode;
  std::int64_t row, column;  ///< where it begins in the product
  bool has_packed_b;         ///< the part before this one has packed the same columns of B
};

/// What a kernel does in a call. All else asks these rows, so another kernel is another row of call.cpp's table.
struct KernelRole {
  std::string_view name;
  bool (*runs)(const NormalProblem& normalised, const KernelConfig& config);
  KernelSource (*generate)(const NormalProblem& normalised, const KernelConfig& config, const DeviceInfo& device);
  std::size_t (*smem_bytes)(const NormalProblem& normalised, const KernelConfig& config);  ///< that it is loaded for
  void (*prepare)(const Part& part, Step& step);  ///< fills in grid and arguments; a grid of 0: nothing to do
};

/// Of the kernels that such a call runs, in their order. The GEMM kernel's is the last.
FixedList<const KernelRole*, most_kernels> roles_of(const NormalProblem& normalised, const KernelConfig& config);
const KernelRole& gemm_role();

struct CallKernel {
  const KernelRole* role = nullptr;
  const Kernel* kernel = nullptr;  ///< the KernelStore keeps it
};
/// As roles_of() has them.
using CallKernels = FixedList<CallKernel, most_kernels>;
CallKernels get_kernels(KernelStore& store, const NormalProblem& normalised, const KernelConfig& config,
                        const DeviceInfo& device);

/// What launching needs that does not depend on pointers and scalars.
struct Ready {
  KernelConfig config;
  LaunchShape shape;
  CallKernels kernels;

  const Kernel& gemm() const { return *kernels.back().kernel; }
};
Ready make_ready(KernelStore& store, const NormalProblem& normalised, const KernelConfig& config,
                 const DeviceInfo& device);

/// Hands the launches of a call to `launch`, in order: those of its kernels or, of packed operands beyond
/// max_packed_bytes, the same for each slab of D. The steps of a part are all prepared before the first is launched.
void for_each_step(const Ready& ready, const NormalProblem& normalised, const Operands& operands,
                   const Workspace& workspace, const EncodeTensorMap& encode, FunctionRef<void(const Step&)> launch);

inline void launch(Backend& backend, const Step& step, Stream stream) {
  backend.launch(*step.kernel->loaded, step.grid, step.arguments(), stream);
}

}  // namespace jitgemm
