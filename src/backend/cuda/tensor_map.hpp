#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/driver_api.hpp"

namespace jitgemm::cuda {

/// Of rank 3: inner, outer and batch. A CUDA context must be current.
device::TensorMap encode_tensor_map(const DriverApi& api, const TensorMapSpec& spec);

}  // namespace jitgemm::cuda
