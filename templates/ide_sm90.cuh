// For editors alone: the Hopper main loop's part of ide.cuh.
#pragma once
#include "geometry_sm90.cuh"
#include "ide.cuh"

namespace jitgemm::device {

static_assert(sm90::broken_rule(PARAMETERS) == nullptr, "a rule at the end of the geometry is broken");
constexpr sm90::Geometry GEOMETRY = sm90::geometry(PARAMETERS);

}  // namespace jitgemm::device
