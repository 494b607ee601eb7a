#pragma once

#include <string>

#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// Compiles what `jitgemm wisdom cover --list` wrote: a `problem; configuration` a line. Returns how many lines there
/// are.
std::size_t warm_list(Context& context, const std::string& file, int jobs);

}  // namespace jitgemm::cli
