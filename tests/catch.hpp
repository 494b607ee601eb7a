// Catch2 v2 (Debian 12) or v3 (Ubuntu 24.04), whichever is installed.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>
#else
#include <catch2/catch.hpp>

#include <iostream>

/// Ends the test case as skipped: ctest reads the word. Only in the test case's own function.
#define SKIP(reason)                                 \
  do {                                               \
    std::cout << "SKIPPED: " << reason << std::endl; \
    return;                                          \
  } while (false)

namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& text) { return Contains(text); }
}  // namespace Catch::Matchers
#endif
