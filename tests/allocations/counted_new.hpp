#pragma once

namespace jitgemm::test {

/// Calls of operator new by this thread.
extern thread_local long allocations;

/// While it lives, the n-th call of operator new by this thread fails, n = 0 being the next, or it and all later ones.
class FailingAllocation {
 public:
  FailingAllocation(long n, bool and_later);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  static bool failed();  ///< whether one has failed since the latest was made
};

}  // namespace jitgemm::test
