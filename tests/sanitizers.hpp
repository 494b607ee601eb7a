#pragma once

namespace jitgemm::test {

/// UBSan reads an object's virtual table by way of a pipe, which takes a file descriptor.
#ifdef JITGEMM_UBSAN
inline constexpr bool ubsan = true;
#else
inline constexpr bool ubsan = false;
#endif
inline constexpr const char* ubsan_opens_pipes = "UBSan needs file descriptors";

}  // namespace jitgemm::test
