#pragma once

#include <array>

#include "backend/cuda/driver_api.hpp"
#include "core/launch_grid.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm::cuda {

/// A launch as the driver is told of it.
struct LaunchConfig : CUlaunchConfig {
  LaunchConfig(const LaunchGrid& shape, bool dependent, Stream stream) : CUlaunchConfig{} {
    attrs = attributes.data();
    if (shape.cluster > 1) {
      CUlaunchAttribute& attribute = attributes[numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attribute.value.clusterDim = {unsigned(shape.cluster), 1, 1};
    }
    if (shape.cooperative) {
      CUlaunchAttribute& attribute = attributes[numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
      attribute.value.cooperative = 1;
    }
    if (dependent) {
      CUlaunchAttribute& attribute = attributes[numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attribute.value.programmaticStreamSerializationAllowed = 1;
    }
    gridDimX = unsigned(shape.grid);
    gridDimY = gridDimZ = 1;
    blockDimX = unsigned(shape.threads);
    blockDimY = blockDimZ = 1;
    sharedMemBytes = unsigned(shape.smem_bytes);
    hStream = stream;
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

  std::array<CUlaunchAttribute, 3> attributes = {};
};

}  // namespace jitgemm::cuda
