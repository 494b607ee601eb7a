#pragma once

#include "jitgemm/cache.hpp"
#include "jitgemm/constraints.hpp"
#include "jitgemm/context.hpp"
#include "jitgemm/device.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/options.hpp"
#include "jitgemm/plan.hpp"
#include "jitgemm/problem.hpp"
#include "jitgemm/types.hpp"
#include "jitgemm/version.hpp"
#include "jitgemm/wisdom.hpp"
