#pragma once

#include <functional>

namespace jitgemm::cli {

/// body(0) ... body(count - 1) on `jobs` threads, 0: one a processor. `finished` gets how many are, on one thread at a
/// time. The first exception stops the rest and is thrown again.
void parallel_for(int count, int jobs, const std::function<void(int)>& body,
                  const std::function<void(int)>& finished = {});

}  // namespace jitgemm::cli
