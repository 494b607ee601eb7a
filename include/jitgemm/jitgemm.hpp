#pragma once

#include "jitgemm/context.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"
#include "jitgemm/types.hpp"
#include "jitgemm/version.hpp"
