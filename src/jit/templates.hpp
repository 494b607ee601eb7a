#pragma once

#include <string>
#include <string_view>

namespace jitgemm {

/// The text of a file of templates/ ("ptx/mma.cuh"), embedded at build time. Throws Error{internal} for an unknown
/// name.
std::string_view template_text(std::string_view name);

/// A template as kernels have it: without its lines `#pragma once` and `#include "..."`, by which editors and the
/// host's compiler find the other files. The generator puts those together itself.
std::string without_includes(std::string_view text);

}  // namespace jitgemm
