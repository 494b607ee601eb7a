// For editors alone: the portable main loop's part of ide.cuh.
#pragma once
#include "geometry_sm80.cuh"
#include "ide.cuh"

namespace jitgemm::device {

static_assert(sm80::broken_rule(PARAMETERS) == nullptr, "a rule at the end of the geometry is broken");
constexpr sm80::Geometry GEOMETRY = sm80::geometry(PARAMETERS);

}  // namespace jitgemm::device
