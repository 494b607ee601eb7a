#pragma once

#include "kernels/legality.hpp"

namespace jitgemm::test {

/// Whether several CTAs, or blocks of a cluster, add up one element.
inline bool splits_k(const KernelConfig& c) {
  return c.cluster_k > 1 || (c.schedule != Schedule::data_parallel && c.schedule != Schedule::persistent);
}

}  // namespace jitgemm::test
