#pragma once

#include <string_view>

namespace jitgemm {

/// The text of a file of templates/ ("ptx/mma.cuh"), embedded at build time. Throws Error{internal} for an unknown
/// name.
std::string_view template_text(std::string_view name);

}  // namespace jitgemm
