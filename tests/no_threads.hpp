#pragma once

#include <pthread.h>

#include <cstddef>

#include "catch.hpp"

namespace jitgemm::test {

/// While it lives, the system refuses every new thread: its stack would take the whole address space.
class NoThreads {
 public:
  NoThreads() {
    REQUIRE(pthread_getattr_default_np(&old_) == 0);
    pthread_attr_t huge = old_;
    REQUIRE(pthread_attr_setstacksize(&huge, std::size_t(1) << 47) == 0);
    REQUIRE(pthread_setattr_default_np(&huge) == 0);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&old_);
    pthread_attr_destroy(&old_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t old_;
};

}  // namespace jitgemm::test
