// Device memory while streams, threads and graphs come and go by the thousand: bounded meanwhile, and all given back.
#include <algorithm>
#include <functional>
#include <iostream>
#include <thread>

#include "catch.hpp"
#include "cuda_fixtures.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr std::size_t mebibyte = std::size_t(1) << 20;
constexpr std::size_t bound = 256 * mebibyte;

std::size_t memory_in_use() {
  using GetInfo = CUresult (*)(std::size_t*, std::size_t*);
  static const auto get_info = reinterpret_cast<GetInfo>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemGetInfo_v2"));
  if (!get_info) throw std::runtime_error("the driver has no cuMemGetInfo_v2");
  std::size_t free = 0, total = 0;
  require(get_info(&free, &total));
  return total - free;
}

/// Calls whose packed operands take 16 MiB of workspace, beside partial tiles and their counters.
class Memory {
 public:
  const Problem problem{.m = 64, .n = 64, .k = 65537, .b = {.layout = Layout::column_major}};
  const KernelConfig config = parse_kernel_config("sm90 64x64x64 stages=4 warps=4 pack=ab schedule=split_k splits=16");

  Memory()
      : backend(make_cuda_backend()),
        context(options()),
        operands(*backend, problem),
        workspace(context.workspace_size(problem, config)) {}

  void gemm(Stream stream) { context.gemm(problem, operands.operands, stream, config); }

  /// Runs `some(count)` a few times less first, so that whatever the driver keeps for itself is there at the start.
  void measure(const std::string& name, int count, const std::function<void(int)>& some) {
    some(std::max(1, count / 20));
    context.trim();
    const std::size_t start = memory_in_use();
    most_ = start;
    operands.poison();
    some(count);
    CHECK(operands.violation(config.main_loop) == "");
    const std::size_t held = context.counters().workspace_bytes + context.counters().graph_workspace_bytes;
    context.trim();
    const std::size_t end = memory_in_use();
    const auto mib = [](std::size_t bytes) { return double(bytes) / double(mebibyte); };
    std::cout << "device memory, " << count << " " << name << ": " << mib(start) << " MiB at the start, " << mib(most_)
              << " at most, " << mib(end) << " at the end; workspaces held " << mib(held) << ", of a call "
              << mib(workspace) << std::endl;
    INFO(name);
    CHECK(held <= bound + workspace);
    CHECK(most_ <= start + bound + 2 * workspace);  // one that is being replaced, and what the driver rounds up
    CHECK(context.counters().workspace_bytes == 0);
    CHECK(context.counters().graph_workspace_bytes == 0);
    CHECK(end == start);
  }
  void look() { most_ = std::max(most_, memory_in_use()); }

  const TemporaryDirectory cache;
  const std::unique_ptr<Backend> backend;
  Context context;
  DeviceOperands operands;
  const std::size_t workspace;

 private:
  ContextOptions options() const {
    ContextOptions options = options_in(cache);
    options.workspace_bound_bytes = bound;
    return options;
  }

  std::size_t most_ = 0;
};

}  // namespace

TEST_CASE("On the GPU, memory stays bounded while streams, threads and graphs come and go", "[.][gpu][context][long]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  if (!make_cuda_backend()->device().has_wgmma()) SKIP("packed operands need wgmma, which this device has not");
  const PrimaryContext current;
  const GraphApi api;
  Memory memory;
  REQUIRE(memory.workspace > 8 * mebibyte);
  REQUIRE(memory.workspace < 32 * mebibyte);

  memory.measure("streams, one after the other", 1000, [&](int count) {
    for (int i = 0; i < count; ++i) {
      const OwnStream stream(*memory.backend);
      memory.gemm(stream);
      // Or the stream ends with work on it, but for the last one.
      if (i % 2 == 0 || i + 1 == count) memory.backend->synchronize(stream);
      memory.look();
    }
  });

  memory.measure("streams, 32 at a time", 1000, [&](int count) {
    for (int i = 0; i < count; i += 32) {
      std::vector<std::unique_ptr<OwnStream>> streams;
      for (int j = 0; j < 32; ++j) {
        streams.push_back(std::make_unique<OwnStream>(*memory.backend));
        memory.gemm(*streams.back());
      }
      memory.look();
      for (const auto& stream : streams) memory.backend->synchronize(*stream);
    }
  });

  memory.measure("threads with their default streams, 8 at a time", 1000, [&](int count) {
    for (int i = 0; i < count; i += 8) {
      std::vector<std::string> failures(8);
      std::vector<std::thread> threads;
      for (std::string& failure : failures) {
        threads.emplace_back([&] {
          try {
            memory.gemm(CU_STREAM_PER_THREAD);
            memory.backend->synchronize(CU_STREAM_PER_THREAD);
          } catch (const std::exception& error) {
            failure = error.what();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      REQUIRE(failures == std::vector<std::string>(8));
      memory.look();
    }
  });

  memory.measure("graphs of 100 calls", 1000, [&](int count) {
    const OwnStream stream(*memory.backend);
    for (int i = 0; i < count; ++i) {
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      require(api.begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
      for (int call = 0; call < 100; ++call) memory.gemm(stream);
      require(api.end_capture(stream, &graph));
      require(api.instantiate(&exec, graph, 0));
      require(api.graph_destroy(graph));
      require(api.launch(exec, stream));
      memory.backend->synchronize(stream);
      memory.look();
      require(api.exec_destroy(exec));
    }
  });

  memory.measure("graphs of 100 calls that are never launched", 1000, [&](int count) {
    const OwnStream stream(*memory.backend);
    for (int i = 0; i < count; ++i) {
      CUgraph graph = nullptr;
      require(api.begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
      for (int call = 0; call < 100; ++call) memory.gemm(stream);
      require(api.end_capture(stream, &graph));
      require(api.graph_destroy(graph));
      memory.look();
    }
    memory.gemm(stream);  // the D that is checked, and the call that frees what graphs have left
    memory.backend->synchronize(stream);
  });
}
