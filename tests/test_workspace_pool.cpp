#include "workspace_pool.hpp"

#include <cstring>

#include "backend/backend.hpp"
#include "catch.hpp"

using namespace jitgemm;

TEST_CASE("The workspace of a stream grows, and what earlier launches use stays", "[context]") {
  const auto backend = make_emulator_backend({});
  WorkspacePool pool(*backend);
  const Stream stream = backend->create_stream(), other = backend->create_stream();
  const Workspace first = pool.of_stream(stream, 1000, 10);
  for (int i = 0; i < 10; ++i) CHECK(first.counters[i] == 0);
  CHECK(pool.of_stream(stream, 500, 10).memory == first.memory);
  const Workspace counters_only = pool.of_stream(stream, 0, 10);
  CHECK(counters_only.counters == first.counters);

  std::memset(first.memory, 1, 1000);
  const Workspace grown = pool.of_stream(stream, 5000, 10);
  CHECK(grown.memory != first.memory);
  CHECK(grown.counters == first.counters);
  std::memset(grown.memory, 2, 5000);
  CHECK(static_cast<char*>(first.memory)[999] == 1);
  const Workspace more_counters = pool.of_stream(stream, 5000, 100000);
  CHECK(more_counters.memory == grown.memory);
  CHECK(more_counters.counters[99999] == 0);

  CHECK(pool.of_stream(other, 1000, 10).memory != grown.memory);
  const Workspace captured = pool.of_capture(1000, 10), captured_next = pool.of_capture(1000, 10);
  CHECK(captured.memory != captured_next.memory);
  CHECK(captured.counters != captured_next.counters);

  more_counters.counters[3] = 7;  // as after a launch that failed half way
  pool.launch_failed(more_counters);
  const Workspace fresh = pool.of_stream(stream, 1000, 10);
  CHECK(fresh.counters == more_counters.counters);
  CHECK(fresh.counters[3] == 0);
}
