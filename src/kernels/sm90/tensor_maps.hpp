#pragma once

#include "core/problem.hpp"
#include "core/tensor_map_spec.hpp"
#include "jitgemm/kernel_config.hpp"
#include "kernels/kernel_problem.hpp"

namespace jitgemm {

/// What an sm90 kernel copies by TMA, without addresses: of a swapped problem `a` is the problem's B. D only where it
/// is stored by TMA, else its box is empty.
struct TensorMaps {
  TensorMapSpec a, b, d;
  bool has_d() const { return d.box_inner > 0; }
};
TensorMaps tensor_maps_of(const NormalProblem& normalised, const KernelProblem& kernel_problem,
                          const KernelConfig& config);

}  // namespace jitgemm
