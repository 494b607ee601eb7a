#pragma once

#include <string>
#include <string_view>

namespace jitgemm::cuda {

/// What a function in PTX does besides computing a value of its parameters - memory, synchronisation, calls, what
/// depends on the thread or the time - with the line of the file "epilogue" where it has line information; empty if
/// nothing.
std::string why_ptx_refused(std::string_view ptx, std::string_view function);

}  // namespace jitgemm::cuda
