#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace jitgemm::test {

using Memory = std::unique_ptr<char, std::function<void(char*)>>;

/// Host memory whose end faults when passed: AddressSanitizer's, or a protected page's, which may be alignment - 1
/// bytes off.
Memory allocate_exactly(std::size_t bytes, std::size_t alignment);

}  // namespace jitgemm::test
