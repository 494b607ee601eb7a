#pragma once

// The templates that the host compiles too. They include nothing, so their order matters here.
// clang-format off
#include "schedule.cuh"
#include "geometry.cuh"
#include "geometry_sm80.cuh"
#include "geometry_sm90.cuh"
#include "arguments.cuh"
#include "pack_arguments.cuh"
// clang-format on
