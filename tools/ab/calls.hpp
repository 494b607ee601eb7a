#pragma once

#include "options.hpp"
#include "sides.hpp"

namespace ab {

/// Prints what a warm call costs the host, with the Context's own workspace. False: a case of one thread failed.
bool compare_calls(const Options& options, Sides& sides);

}  // namespace ab
