#include "common/parallel.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace jitgemm::cli {

void parallel_for(int count, int jobs, const std::function<void(int)>& body, const std::function<void(int)>& finished) {
  if (jobs <= 0) jobs = int(std::max(1u, std::thread::hardware_concurrency()));
  std::mutex mutex;
  int next = 0, done = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    while (true) {
      int i;
      {
        const std::lock_guard lock(mutex);
        if (next >= count || failure) return;
        i = next++;
      }
      try {
        body(i);
        const std::lock_guard lock(mutex);
        ++done;
        if (finished) finished(done);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (int i = 1; i < std::min(jobs, count); ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {  // as many as the system gives
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace jitgemm::cli
