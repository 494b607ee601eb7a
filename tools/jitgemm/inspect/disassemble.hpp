#pragma once

#include <string>

namespace jitgemm::cli {

/// The SASS in a cubin, by nvdisasm or cuobjdump from PATH.
std::string disassemble(const std::string& cubin);

}  // namespace jitgemm::cli
