#pragma once

#include <string>

namespace jitgemm::cuda {

/// The compiler and the options that every kernel is compiled with, for the cache's key.
std::string nvrtc_kind();

}  // namespace jitgemm::cuda
