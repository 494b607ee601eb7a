#pragma once

#include <string>

#include "common/options.hpp"
#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// Compiles what `jitgemm wisdom cover --list` wrote: a `problem; configuration` a line. Returns how many lines there
/// are.
std::size_t warm_list(Context& context, const std::string& file, int jobs);

/// Such a list, of the kernels that serve aligned 16-bit problems, squares and decoding best: the first 24
/// and the first 48 are the sets.
extern const char* const few_kernels_sm90;
/// The first `kernels` of it that are legal for problems of these types and layouts.
std::size_t warm_few(Context& context, const ProblemOptions& problem, std::size_t kernels, int jobs);

}  // namespace jitgemm::cli
