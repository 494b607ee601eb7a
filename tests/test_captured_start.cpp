// When captured launches start, by what is before them: on a driver that shows the edges, and on a GPU behind kernels
// of others that are late to write what a call reads.
#include <cstring>

#include "catch.hpp"
#include "core/kernel_interface.hpp"
#include "cuda_fixtures.hpp"
#include "errors.hpp"
#include "fake_driver.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

const auto stream = reinterpret_cast<Stream>(std::uintptr_t(0x70)),
           other = reinterpret_cast<Stream>(std::uintptr_t(0x80));
const auto foreign = reinterpret_cast<CUfunction>(std::uintptr_t(0x55));

enum class Start { ordinary, by_trigger, once_its_blocks_run };

Start start_of(const FakeGraphs::Node& node) {
  CHECK((node.edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) == (node.edge.from_port != 0));
  return node.edge.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC   ? Start::by_trigger
         : node.edge.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER ? Start::once_its_blocks_run
                                                                         : Start::ordinary;
}

/// A backend on a driver that is none, one kernel, and a capture. An SM takes one block of any kernel at a time.
class Capturing {
 public:
  explicit Capturing(bool dependent_launch = true) {
    FakeDriver::reset();
    backend_ = cuda::make_backend(api_, dependent_launch);
    kernel_ = backend_->load({.code = "cubin", .entry = "f", .architecture = "sm_90a", .compiler = "nvrtc"}, 0);
    FakeGraphs::begin(stream);
  }
  ~Capturing() {
    FakeGraphs::destroy(FakeGraphs::end(stream));
    kernel_.reset();
    backend_.reset();
    CHECK(FakeDriver::alive.empty());
  }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

  void launch(bool wants_empty_gpu = false, int blocks = 8) {
    backend_->launch(*kernel_, {.grid = blocks, .threads = 128, .smem_bytes = 1024, .wants_empty_gpu = wants_empty_gpu},
                     bytes_of(device::Arguments{}), stream);
  }
  Start start_of_next() {
    launch();
    return start_of(FakeGraphs::last_node(stream));
  }
  void launch_foreign(unsigned blocks, unsigned smem_bytes = 0, Stream on = stream) {
    CUlaunchConfig config{};
    config.gridDimX = blocks;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 128;
    config.sharedMemBytes = smem_bytes;
    config.hStream = on;
    require(api_.launch_kernel_ex(&config, foreign, nullptr, nullptr));
  }

  static constexpr unsigned sms = 132;

 private:
  const cuda::DriverApi api_ = FakeDriver::api();
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<LoadedKernel> kernel_;
};

}  // namespace

TEST_CASE("a captured kernel starts by the trigger of one of ours before it, and without one in an empty graph",
          "[cuda]") {
  Capturing capturing;
  CHECK(capturing.start_of_next() == Start::ordinary);
  CHECK(capturing.start_of_next() == Start::by_trigger);
  CHECK(capturing.start_of_next() == Start::by_trigger);
}

TEST_CASE("behind another's kernel a captured one starts early where that runs for a while", "[cuda]") {
  Capturing capturing;
  capturing.launch();
  capturing.launch_foreign(Capturing::sms);
  CHECK(capturing.start_of_next() == Start::ordinary);
  capturing.launch_foreign(Capturing::sms + 1);
  CHECK(capturing.start_of_next() == Start::once_its_blocks_run);
  CHECK(capturing.start_of_next() == Start::by_trigger);
  capturing.launch_foreign(1, 48 << 10);
  CHECK(capturing.start_of_next() == Start::ordinary);
  capturing.launch_foreign(1, (48 << 10) + 16);
  CHECK(capturing.start_of_next() == Start::once_its_blocks_run);
}

TEST_CASE("a captured kernel that wants an empty GPU starts early behind ours alone, which know when to let it",
          "[cuda]") {
  Capturing capturing;
  const auto start = [&] {
    capturing.launch(true);
    return start_of(FakeGraphs::last_node(stream));
  };
  capturing.launch_foreign(1000);
  CHECK(start() == Start::ordinary);
  CHECK(start() == Start::by_trigger);
  capturing.launch_foreign(1000);
  CHECK(capturing.start_of_next() == Start::once_its_blocks_run);
}

TEST_CASE("a captured kernel that wants an empty GPU waits for ours where that leaves it too little room", "[cuda]") {
  Capturing capturing;
  const auto start_behind = [&](int before, int blocks, bool wants_empty_gpu) {
    capturing.launch(false, before);
    capturing.launch(wants_empty_gpu, blocks);
    return start_of(FakeGraphs::last_node(stream));
  };
  CHECK(start_behind(56, 76, true) == Start::by_trigger);  // 132 SMs
  CHECK(start_behind(57, 76, true) == Start::ordinary);
  CHECK(start_behind(66, 66, true) == Start::by_trigger);
  CHECK(start_behind(112, 56, false) == Start::by_trigger);
  for (const int full : {112, 132, 264, 1000}) {
    CAPTURE(full);
    CHECK(start_behind(full, 56, true) == Start::ordinary);
    CHECK(start_behind(full, 56, false) == Start::by_trigger);
  }
  CHECK(start_behind(75, 75, true) == Start::by_trigger);  // which holds it back
}

TEST_CASE("a captured kernel has an ordinary start behind what is no kernel, and behind several nodes", "[cuda]") {
  Capturing capturing;
  FakeGraphs::take(stream, [] { return CUDA_SUCCESS; });
  CHECK(capturing.start_of_next() == Start::ordinary);
  FakeGraphs::join(other, stream);
  capturing.launch_foreign(1000, 0, other);
  FakeGraphs::join(stream, other);
  CHECK(capturing.start_of_next() == Start::ordinary);
}

TEST_CASE("without dependent_launch captured kernels have ordinary starts", "[cuda]") {
  Capturing capturing(false);
  capturing.launch();
  CHECK(capturing.start_of_next() == Start::ordinary);
  capturing.launch_foreign(1000);
  CHECK(capturing.start_of_next() == Start::ordinary);
}

TEST_CASE("a capture that a launch failed in lets nothing else start early", "[cuda]") {
  Capturing capturing;
  capturing.launch_foreign(1000);
  const int calls = FakeDriver::calls;
  CHECK(capturing.start_of_next() == Start::once_its_blocks_run);
  const int launch_calls = FakeDriver::calls - calls;
  for (int failing = 1; failing <= launch_calls; ++failing) {
    capturing.launch_foreign(1000);
    FakeDriver::failing_call = FakeDriver::calls + failing;
    if (!error_if_any([&] { capturing.launch(); })) capturing.launch_foreign(1000);  // it asked what it can do without
    FakeDriver::failing_call = 0;
    capturing.launch_foreign(1000);
    INFO("driver call " << failing << " failed");
    CHECK(start_of(FakeGraphs::last_node(stream)) == Start::ordinary);
  }
  FakeGraphs::update_result = CUDA_ERROR_UNKNOWN;
  CHECK(capturing.start_of_next() == Start::ordinary);
}

TEST_CASE("a captured gemm reads what a late kernel of another's writes before it", "[gpu]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  const GraphApi api;
  const PrimaryContext current;
  const OwnStream own(*backend);
  // Writes all of A when it has run for 20 us, by as many blocks as are asked for.
  const KernelSource text{.text = R"(
extern "C" __global__ void late(unsigned short* to, const unsigned short* from, int elements) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < 20000);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += gridDim.x * blockDim.x) to[i] = from[i];
})",
                          .entry = "late",
                          .architecture = backend->device().architecture(),
                          .config = "late"};
  const KernelBinary binary = backend->compile(text);
  CUmodule module = nullptr;
  CUfunction late = nullptr;
  require(cuda::driver().module_load_data(&module, binary.code.data()));
  require(cuda::driver().module_get_function(&late, module, "late"));

  const Problem problem{.m = 256, .n = 256, .k = 512};
  DeviceOperands device(*backend, problem);
  const auto elements = int(problem.m * problem.k);
  const std::size_t bytes = std::size_t(elements) * 2;
  void* const a = device.allocate(bytes);
  Context context(options_in(cache));
  for (const KernelConfig& config : both_main_loops(*backend)) {
    context.compile(problem, config);
    for (const unsigned blocks : {1u, 132u, 3000u}) {
      CAPTURE(to_string(config), blocks);
      Operands operands = device.operands;
      operands.a = a;
      context.gemm(problem, operands, own, config);
      backend->synchronize(own);
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      require(api.begin_capture(own, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      const void* from = device.operands.a;
      int count = elements;
      void* parameters[] = {const_cast<void**>(&a), &from, &count};
      CUlaunchConfig launch{};
      launch.gridDimX = blocks;
      launch.gridDimY = launch.gridDimZ = launch.blockDimY = launch.blockDimZ = 1;
      launch.blockDimX = 256;
      launch.hStream = own;
      require(cuda::driver().launch_kernel_ex(&launch, late, parameters, nullptr));
      context.gemm(problem, operands, own, config);
      require(api.end_capture(own, &graph));
      require(api.instantiate(&exec, graph, 0));
      for (int replay = 0; replay < 10; ++replay) {
        device.poison();
        backend->fill(a, 0xff, bytes);  // NaN
        require(api.launch(exec, own));
        backend->synchronize(own);
        CHECK(device.violation(config.main_loop) == "");
      }
      require(api.exec_destroy(exec));
      require(api.graph_destroy(graph));
    }
  }
  require(cuda::driver().module_unload(module));
}
