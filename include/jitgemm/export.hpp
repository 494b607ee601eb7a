#pragma once

#if __cplusplus < 202002L  // #error would go on, and be followed by all that older C++ does not know
#include <jitgemm needs C++20: compile with -std=c++20 or newer>
#endif

/// Marks what libjitgemm.so shows; everything else is hidden. What is linked with the static library follows its own
/// options.
#ifdef JITGEMM_STATIC
#define JITGEMM_EXPORT
#else
#define JITGEMM_EXPORT __attribute__((visibility("default")))
#endif
