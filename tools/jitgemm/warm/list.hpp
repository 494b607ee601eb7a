#pragma once

#include <string>

#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// Compiles what `jitgemm wisdom cover --list` wrote: a `problem; configuration` a line. Returns how many lines there
/// are.
std::size_t warm_list(Context& context, const std::string& file, int jobs);

/// Such a list, of the 24 kernels that serve aligned f16 problems on an H200 best.
extern const char* const few_kernels_sm90;
std::size_t warm_few(Context& context, int jobs);

}  // namespace jitgemm::cli
