#pragma once

// The templates that the host compiles too.
#include "address_map.cuh"
#include "arguments.cuh"
#include "begin_call_arguments.cuh"
#include "block_scales_arguments.cuh"
#include "check_arguments.cuh"
#include "custom_epilogue_arguments.cuh"
#include "geometry.cuh"
#include "group_arguments.cuh"
#include "one_shot_arguments.cuh"
#include "own_scales_arguments.cuh"
#include "pack_arguments.cuh"
#include "schedule.cuh"
#include "shard_arguments.cuh"
#include "sum_epilogue_arguments.cuh"
