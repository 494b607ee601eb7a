#pragma once

#include <string>

namespace jitgemm::cli {

/// The PTX that NVRTC makes of a kernel source for an architecture. Needs no GPU.
std::string ptx_of(const std::string& source, const std::string& architecture);

/// The SASS in a cubin, by nvdisasm or cuobjdump from PATH.
std::string disassemble(const std::string& cubin);

}  // namespace jitgemm::cli
