#pragma once

#include <istream>
#include <string>
#include <utility>
#include <vector>

#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

/// Kernels, each by a problem and a configuration of it: a `problem; configuration` a line, # begins a comment.
using KernelList = std::vector<std::pair<Problem, KernelConfig>>;
/// Throws Error{io} with the path and the line.
KernelList parse_kernel_list(std::istream& file, const std::string& path);
/// What `jitgemm wisdom cover --list` wrote.
KernelList read_kernel_list(const std::string& path);

}  // namespace jitgemm::cli
