// The workspaces of streams and of captured graphs.
#include "workspace_pool.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <thread>

#include "backend/backend.hpp"
#include "backend/cuda/cuda_backend.hpp"
#include "catch.hpp"
#include "errors.hpp"
#include "fake_gpu.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr std::size_t no_bound = SIZE_MAX;

Workspace workspace_of(WorkspacePool& pool, Stream stream, const WorkspaceNeed& need) {
  Workspace seen;
  pool.with_workspace(stream, need, [&](const Workspace& workspace) { seen = workspace; });
  return seen;
}

Stream stream_of(int i) { return reinterpret_cast<Stream>(std::uintptr_t(0x100 * (i + 1))); }

/// A pool on FakeGpu, whose captures and graphs are FakeGraphs'.
struct GpuFixture {
  explicit GpuFixture(std::size_t bound = no_bound) {
    allocations = 0;
    most_alive = SIZE_MAX;
    api.mem_alloc = [](CUdeviceptr* pointer, std::size_t bytes) {
      ++allocations;
      return FakeGpu::alive.size() > most_alive ? CUDA_ERROR_OUT_OF_MEMORY : FakeGpu::api().mem_alloc(pointer, bytes);
    };
    backend = cuda::make_backend(api);
    alive_before = FakeGpu::alive.size();
    pool.emplace(*backend, bound);
  }
  ~GpuFixture() {
    pool.reset();
    CHECK(FakeGpu::alive.size() == alive_before);
    backend.reset();
  }

  /// A call that is captured, of one kernel.
  void* capture(Stream stream, const WorkspaceNeed& need) {
    void* memory = nullptr;
    pool->with_workspace(stream, need, [&](const Workspace& workspace) {
      memory = workspace.memory;
      add_node(stream);
    });
    return memory;
  }
  static void add_node(Stream stream) {
    FakeGraphs::take(stream, [] { return CUDA_SUCCESS; });
  }

  static inline std::atomic<int> allocations = 0;
  static inline std::atomic<std::size_t> most_alive = SIZE_MAX;  // more is out of memory

  struct Reset {
    Reset() { FakeGpu::reset(); }
  } reset;
  cuda::DriverApi api = FakeGpu::api();
  std::unique_ptr<Backend> backend;
  std::size_t alive_before = 0;
  std::optional<WorkspacePool> pool;
};

}  // namespace

TEST_CASE("The workspace of a stream grows, and what earlier launches use stays", "[context]") {
  const auto backend = make_emulator_backend({});
  WorkspacePool pool(*backend, no_bound);
  const Stream stream = backend->create_stream(), other = backend->create_stream();
  const Workspace first = workspace_of(pool, stream, {1000, 10});
  for (int i = 0; i < 10; ++i) CHECK(first.counters[i] == 0);
  CHECK(workspace_of(pool, stream, {500, 10}).memory == first.memory);
  CHECK(workspace_of(pool, stream, {0, 10}).counters == first.counters);

  std::memset(first.memory, 1, 1000);
  const Workspace grown = workspace_of(pool, stream, {5000, 10});
  CHECK(grown.memory != first.memory);
  CHECK(grown.counters == first.counters);
  std::memset(grown.memory, 2, 5000);
  CHECK(static_cast<char*>(first.memory)[999] == 1);
  const Workspace more_counters = workspace_of(pool, stream, {5000, 100000});
  CHECK(more_counters.memory == grown.memory);
  CHECK(more_counters.counters[99999] == 0);
  CHECK(pool.stream_bytes() == 1000 + 5000 + (1024 + 100000) * sizeof(unsigned));

  CHECK(workspace_of(pool, other, {1000, 10}).memory != grown.memory);
  CHECK(workspace_of(pool, other, {}).memory != grown.memory);
}

TEST_CASE("Counters that a failed call may have left are zeroed before the next", "[context]") {
  const auto backend = make_emulator_backend({});
  WorkspacePool pool(*backend, no_bound);
  const auto fail = [&](unsigned count) {
    pool.with_workspace(nullptr, {1000, 10}, [&](const Workspace& workspace) {
      workspace.counters[3] = count;
      throw std::runtime_error("the second launch of three");
    });
  };
  CHECK_THROWS_AS(fail(7), std::runtime_error);
  CHECK(workspace_of(pool, nullptr, {1000, 10}).counters[3] == 0);
  CHECK_THROWS_AS(fail(8), std::runtime_error);
  const Workspace grown = workspace_of(pool, nullptr, {2000, 5000});
  CHECK(std::all_of(grown.counters, grown.counters + 5000, [](unsigned count) { return count == 0; }));
}

TEST_CASE("No other call on a stream comes between what a call enqueues", "[context][threads]") {
  const auto backend = make_emulator_backend({});
  WorkspacePool pool(*backend, 100'000);
  std::array<std::atomic<int>, 3> inside = {};
  std::atomic<int> together = 0, calls = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int call = 0; call < 500; ++call) {
        const int stream = (i + call) % 3;
        const WorkspaceNeed need =
            i % 4 == 3 ? WorkspaceNeed{} : WorkspaceNeed{std::size_t(1000 * (call % 50)), call % 7};
        pool.with_workspace(stream_of(stream), need, [&](const Workspace& workspace) {
          together += ++inside[std::size_t(stream)] != 1;
          if (need.bytes) std::memset(workspace.memory, i, need.bytes);
          std::this_thread::yield();
          if (need.bytes) together += static_cast<char*>(workspace.memory)[need.bytes - 1] != i;
          --inside[std::size_t(stream)];
        });
        if (call % 100 == 0) pool.trim();
        ++calls;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(calls == 4000);
  CHECK(together == 0);
  pool.trim();
  CHECK(pool.stream_bytes() == 0);
}

TEST_CASE("A call is not kept waiting by a call on another stream", "[context][threads]") {
  const auto backend = make_emulator_backend({});
  WorkspacePool pool(*backend, 1000);  // which makes each of the two want the other's memory
  bool done = false;
  pool.with_workspace(stream_of(0), {1000, 1}, [&](const Workspace& outer) {
    std::memset(outer.memory, 1, 1000);
    std::thread([&] {
      pool.with_workspace(stream_of(1), {1000, 1}, [&](const Workspace& inner) { std::memset(inner.memory, 2, 1000); });
      pool.trim();
      done = true;
    }).join();
    CHECK(static_cast<char*>(outer.memory)[999] == 1);
  });
  CHECK(done);
}

TEST_CASE("The workspaces of streams are bounded, and the least recently used goes first", "[context]") {
  constexpr std::size_t counters = 1024 * sizeof(unsigned);
  GpuFixture f(4 * (1000 + counters));
  for (int i = 0; i < 1000; ++i) {
    workspace_of(*f.pool, stream_of(i), {1000, 1});
    CHECK(f.pool->stream_bytes() <= 4 * (1000 + counters));
  }
  const auto has_kept = [&](int i) {
    GpuFixture::allocations = 0;
    workspace_of(*f.pool, stream_of(i), {1000, 1});
    return GpuFixture::allocations == 0;
  };
  CHECK(has_kept(996));  // now the latest
  workspace_of(*f.pool, stream_of(5), {1000, 1});
  CHECK(has_kept(996));
  CHECK_FALSE(has_kept(997));

  // What one call needs, it gets.
  CHECK(workspace_of(*f.pool, stream_of(7), {100'000, 1}).memory);
  CHECK(f.pool->stream_bytes() == 100'000 + counters);
  workspace_of(*f.pool, stream_of(8), {1000, 0});
  CHECK(f.pool->stream_bytes() == 1000);
  f.pool->trim();
  CHECK(f.pool->stream_bytes() == 0);
  CHECK(FakeGpu::alive.size() == f.alive_before);
}

TEST_CASE("Out of memory, the workspaces of other streams go before the call does", "[context]") {
  GpuFixture f;
  workspace_of(*f.pool, stream_of(0), {1000, 1});
  workspace_of(*f.pool, stream_of(1), {1000, 1});
  GpuFixture::most_alive = f.alive_before + 3;
  CHECK(workspace_of(*f.pool, stream_of(2), {3000, 0}).memory);
  CHECK(f.pool->stream_bytes() == 3000);
  GpuFixture::most_alive = f.alive_before;
  const Error error = error_of([&] { workspace_of(*f.pool, stream_of(2), {1'000'000, 5000}); });
  CHECK(error.code() == ErrorCode::out_of_memory);
  CHECK(f.pool->stream_bytes() == 3000);
  GpuFixture::most_alive = SIZE_MAX;
  CHECK(workspace_of(*f.pool, stream_of(2), {5000, 5}).counters[4] == 0);
  f.pool->trim();
  CHECK(f.pool->stream_bytes() == 0);
}

TEST_CASE("Calls that follow each other in a capture share a workspace, those beside each other do not",
          "[context][capture]") {
  GpuFixture f;
  const Stream s = stream_of(0), t = stream_of(1);
  FakeGraphs::begin(s);
  void* const first = f.capture(s, {1000, 10});
  for (int i = 0; i < 20; ++i) GpuFixture::add_node(s);  // others' kernels
  CHECK(f.capture(s, {1000, 10}) == first);

  FakeGraphs::join(t, s);  // a second branch
  CHECK(f.capture(s, {1000, 10}) == first);
  void* const beside = f.capture(t, {1000, 10});
  CHECK(beside != first);
  CHECK(f.capture(t, {500, 10}) == beside);
  CHECK(f.capture(s, {500, 0}) == first);

  FakeGraphs::join(s, t);  // and its end
  GpuFixture::add_node(s);
  void* const after = f.capture(s, {1000, 10});
  CHECK((after == first || after == beside));

  // Whoever changes what comes next changes what is safe.
  FakeGraphs::set_last(s, {});
  void* const unrelated = f.capture(s, {1000, 10});
  CHECK(unrelated != first);
  CHECK(unrelated != beside);
  CHECK(f.pool->graph_bytes() == 3 * (1000 + 4096));
  CHECK(f.pool->stream_bytes() == 0);
  FakeGraphs::destroy(FakeGraphs::end(s));
}

TEST_CASE("Larger needs in one capture come to at most twice the largest", "[context][capture]") {
  GpuFixture f;
  FakeGraphs::begin(nullptr);
  for (std::size_t bytes = 1000; bytes <= 100'000; bytes += 1000) f.capture(nullptr, {bytes, 1});
  CHECK(f.pool->graph_bytes() <= 3 * (100'000 + 4096 * 8));
  FakeGraphs::destroy(FakeGraphs::end(nullptr));
}

TEST_CASE("A graph's workspace lives as long as the graph and its clones, and is freed after that",
          "[context][capture]") {
  GpuFixture f;
  const auto holds = [](void* memory) { return FakeGpu::holds(memory, 1); };
  FakeGraphs::begin(nullptr);
  void* const memory = f.capture(nullptr, {1000, 10});
  const CUgraph graph = FakeGraphs::end(nullptr), instance = FakeGraphs::clone(graph);
  f.pool->trim();
  CHECK(holds(memory));
  FakeGraphs::destroy(graph);
  f.pool->free_dropped(nullptr);
  CHECK(holds(memory));
  FakeGraphs::destroy(instance);  // only leaves word, on another thread
  CHECK(holds(memory));

  SECTION("by the next call") {
    f.pool->free_dropped(nullptr);
    CHECK_FALSE(holds(memory));
  }
  SECTION("by trim") {
    f.pool->trim();
    CHECK_FALSE(holds(memory));
  }
  SECTION("not by a call that is captured, which may use it again") {
    FakeGraphs::begin(nullptr);
    f.pool->free_dropped(nullptr);
    CHECK(holds(memory));
    static_cast<unsigned*>(memory)[0] = 9;
    CHECK(f.capture(nullptr, {1000, 10}) == memory);
    FakeGraphs::destroy(FakeGraphs::end(nullptr));
    f.pool->free_dropped(nullptr);
  }
  CHECK(f.pool->graph_bytes() == 0);
  CHECK(FakeGraphs::objects_alive == 0);
}

TEST_CASE("A thousand graphs of a hundred calls keep one workspace at a time", "[context][capture]") {
  GpuFixture f;
  for (int i = 0; i < 1000; ++i) {
    FakeGraphs::begin(nullptr);
    std::set<void*> seen;
    for (int call = 0; call < 100; ++call) seen.insert(f.capture(nullptr, {1 << 20, 0}));
    CHECK(seen.size() == 1);
    CHECK(f.pool->graph_bytes() == 1 << 20);
    FakeGraphs::destroy(FakeGraphs::end(nullptr));
  }
  f.pool->free_dropped(nullptr);
  CHECK(f.pool->graph_bytes() == 0);
}

TEST_CASE("What was captured never points to freed memory, whatever failed", "[context][capture]") {
  GpuFixture f;
  FakeGraphs::begin(nullptr);
  void* memory = nullptr;
  const auto fail_half_way = [&] {
    f.pool->with_workspace(nullptr, {1000, 10}, [&](const Workspace& workspace) {
      memory = workspace.memory;
      GpuFixture::add_node(nullptr);
      throw std::runtime_error("the second launch");
    });
  };
  CHECK_THROWS_AS(fail_half_way(), std::runtime_error);
  f.pool->trim();
  f.pool->free_dropped(nullptr);
  CHECK(FakeGpu::holds(memory, 1000));
  // The caller goes on. The half of a call may run beside whatever comes next, as far as anyone knows.
  CHECK(f.capture(nullptr, {1000, 10}) != memory);
  const CUgraph graph = FakeGraphs::end(nullptr);
  CHECK(FakeGpu::holds(memory, 1000));
  FakeGraphs::destroy(graph);

  FakeGraphs::begin(nullptr);
  FakeGraphs::retain_result = CUDA_ERROR_NOT_SUPPORTED;
  const std::size_t before = f.pool->graph_bytes();
  const Error error = error_of([&] { f.capture(nullptr, {2000, 10}); });
  CHECK(error.code() == ErrorCode::not_capturable);
  CHECK_THAT(error.what(), Catch::Matchers::ContainsSubstring("Operands::workspace"));
  CHECK(f.pool->graph_bytes() <= before);
  FakeGraphs::retain_result = CUDA_SUCCESS;
  FakeGraphs::destroy(FakeGraphs::end(nullptr));
  f.pool->trim();
  CHECK(f.pool->graph_bytes() == 0);
  CHECK(FakeGraphs::objects_alive == 0);
}

TEST_CASE("A graph may outlive the pool", "[context][capture]") {
  CUgraph graph = nullptr;
  {
    GpuFixture f;
    FakeGraphs::begin(nullptr);
    f.capture(nullptr, {1000, 10});
    graph = FakeGraphs::end(nullptr);
  }
  FakeGraphs::destroy(graph);
  CHECK(FakeGraphs::objects_alive == 0);
}

TEST_CASE("Threads that capture into one graph get its workspaces one after the other", "[context][capture][threads]") {
  GpuFixture f;
  FakeGraphs::begin(stream_of(0));
  for (int i = 1; i < 4; ++i) FakeGraphs::join(stream_of(i), stream_of(0));
  std::array<std::set<void*>, 4> seen;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int call = 0; call < 200; ++call) seen[std::size_t(i)].insert(f.capture(stream_of(i), {1000, 10}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<void*> all;
  for (const auto& of_stream : seen) {
    CHECK(of_stream.size() == 1);
    all.insert(of_stream.begin(), of_stream.end());
  }
  CHECK(all.size() == 4);
  FakeGraphs::destroy(FakeGraphs::end(stream_of(0)));
}
