#pragma once

namespace jitgemm::test {

/// Calls of operator new by this thread.
extern thread_local long allocations;

}  // namespace jitgemm::test
