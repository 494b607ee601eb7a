#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/driver_api.hpp"

namespace jitgemm::cuda {

/// make_cuda_backend() over a given driver. `api` must outlive it.
std::unique_ptr<Backend> make_backend(const DriverApi& api, bool dependent_launch = true, int device = -1);

DeviceInfo device_info(const DriverApi& api, CUdevice device);

/// N(0,1) in this type, the same on every call: what fill_random() fills with.
std::string random_pattern(DataType type, std::size_t elements);
/// Some number for each piece of such a pattern that a matrix of this seed is filled with.
std::uint64_t begin_of_piece(std::uint64_t seed, std::uint64_t piece);

}  // namespace jitgemm::cuda
