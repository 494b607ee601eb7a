#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>

#include "backend/cuda/cuda_backend.hpp"
#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/element.hpp"
#include "errors.hpp"
#include "fake_driver.hpp"
#include "kernels/launch_shape.hpp"
#include "plan/sm90/candidates.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a missing or too old driver is one Error with the way out", "[cuda]") {
  const Error missing = error_of([] { cuda::load_driver("libcuda-of-nobody.so.1"); });
  CHECK(missing.code() == ErrorCode::no_device);
  CHECK_THAT(missing.what(), ContainsSubstring("libcuda-of-nobody.so.1") && ContainsSubstring("the device emulator"));
  const Error old = error_of([] { cuda::load_driver("libm.so.6"); });
  CHECK(old.code() == ErrorCode::no_device);
  CHECK_THAT(old.what(), ContainsSubstring("cuInit") && ContainsSubstring("update the driver"));
}

TEST_CASE("a machine without a GPU has no CUDA devices, and says so", "[cuda]") {
  if (!cuda_devices().empty()) SKIP("this machine has a GPU");
  CHECK(error_of([] { make_cuda_backend(); }).code() == ErrorCode::no_device);
}

TEST_CASE("the random pattern is N(0,1), or of integers N(0,3), in every type, each time the same", "[cuda]") {
  for (const DataTypeInfo& info : data_types()) {
    INFO(info.name);
    const DataType type = info.type;
    const bool is_integer = info.is_integer();
    const double deviation = is_integer ? 3 : 1;
    const std::size_t count = 1 << 18;
    const std::string pattern = cuda::random_pattern(type, count);
    REQUIRE(pattern.size() == count * size_of(type));
    CHECK(pattern == cuda::random_pattern(type, count));
    double sum = 0, squares = 0;
    std::set<double> values;
    for (std::size_t i = 0; i < count; ++i) {
      const double x = load_element(pattern.data(), std::int64_t(i), type) / deviation;
      sum += x;
      squares += x * x;
      values.insert(x);
    }
    CHECK(std::abs(sum / count) < 0.02);
    CHECK(std::abs(squares / count - 1) < 0.02);
    CHECK(values.size() > (is_integer ? 18 : size_of(type) == 1 ? 50 : 500));
  }
}

namespace {

/// Something of everything.
void use(Backend& backend) {
  void* memory = backend.allocate(1000);
  backend.zero(memory, 1000);
  char host[8] = "";
  backend.copy_to_device(memory, host, sizeof host);
  backend.copy_to_host(host, memory, sizeof host);
  backend.fill_random(memory, 400, f16, 1);
  backend.check_pointer(memory, "A", nullptr);
  backend.encode_tensor_map(
      {.address = memory, .inner = 64, .outer = 64, .stride = 64, .box_inner = 64, .box_outer = 64});
  const Stream stream = backend.create_stream();
  backend.stream_id(stream);
  backend.capture_status(stream);
  void* begin = backend.create_event();
  void* end = backend.create_event();
  const auto kernel =
      backend.load({.code = "cubin", .entry = "f", .architecture = "sm_90a", .compiler = "nvrtc"}, 100 << 10);
  backend.record_event(begin, stream);
  LaunchShape shape;
  shape.grid = 7;
  shape.threads = 128;
  shape.smem_bytes = 100 << 10;
  for (const int cluster : {1, 4}) {
    shape.cluster = cluster;
    if (!backend.can_be_resident(*kernel, shape, stream)) throw std::runtime_error("blocks do not fit");
  }
  backend.launch(*kernel, shape, bytes_of(device::Arguments{}), stream);
  backend.record_event(end, stream);
  if (backend.elapsed_us(begin, end) != 250) throw std::runtime_error("the time is not in microseconds");
  backend.synchronize(stream);
  backend.destroy_event(begin);
  backend.destroy_event(end);
  backend.destroy_stream(stream);
  backend.release(memory);
}

}  // namespace

TEST_CASE("the CUDA backend works in its context and leaves the thread's own one alone", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  const auto own = GENERATE(0, 1, 2);  // 0: none is current when the backend is made
  FakeDriver::current = own == 0 ? nullptr : FakeDriver::context(own);
  const CUcontext expected = own == 0 ? FakeDriver::primary() : FakeDriver::context(own);
  {
    const auto backend = cuda::make_backend(api);
    CHECK(FakeDriver::retained == (own == 0 ? 1 : 0));
    for (const CUcontext thread_own : {CUcontext(nullptr), expected, FakeDriver::context(9)}) {
      FakeDriver::current = thread_own;
      use(*backend);
      CHECK(FakeDriver::current == thread_own);
    }
  }
  CHECK(FakeDriver::contexts_seen == std::set{expected});
  CHECK(FakeDriver::stack.empty());
  CHECK(FakeDriver::alive.empty());
  CHECK(FakeDriver::retained == 0);
}

TEST_CASE("a device's number stands for its primary context, whatever is current on the threads that call", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  const auto number = GENERATE(0, 1);
  const CUdevice device = FakeDriver::first_device + number;
  FakeDriver::current = FakeDriver::context(5);
  {
    const auto backend = cuda::make_backend(api, true, number);
    CHECK(FakeDriver::retained_of == std::multiset{device});
    CHECK(FakeDriver::current == FakeDriver::context(5));
    for (const CUcontext thread_own : {CUcontext(nullptr), FakeDriver::primary(device), FakeDriver::context(5)}) {
      std::thread([&] {
        FakeDriver::current = thread_own;
        use(*backend);
        if (FakeDriver::current != thread_own || !FakeDriver::stack.empty()) FakeDriver::note("another is current");
      }).join();
    }
  }
  CHECK(FakeDriver::contexts_seen == std::set{FakeDriver::primary(device)});
  CHECK(std::ranges::count(FakeDriver::log, "another is current") == 0);
  CHECK(FakeDriver::alive.empty());
  CHECK(FakeDriver::retained_of.empty());
}

TEST_CASE("a device's number that there is not is refused with those that there are", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  for (const int number : {2, 1 << 30}) {
    const Error error = error_of([&] { cuda::make_backend(api, true, number); });
    CHECK(error.code() == ErrorCode::invalid_option);
    CHECK_THAT(error.what(), ContainsSubstring("cuda_device=" + std::to_string(number) + " is none of the 2 CUDA") &&
                                 ContainsSubstring("give 0 to 1"));
  }
  CHECK(FakeDriver::retained == 0);
}

TEST_CASE("a device's clock and memory rate are known where the driver says them", "[cuda]") {
  static bool says_rates;
  FakeDriver::reset();
  cuda::DriverApi api = FakeDriver::api();
  api.device_get_name = [](char* name, int, CUdevice) { return std::strcpy(name, "H100"), CUDA_SUCCESS; };
  api.device_get_attribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    const bool rate = attribute == CU_DEVICE_ATTRIBUTE_CLOCK_RATE ||
                      attribute == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE ||
                      attribute == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH;
    if (rate && !says_rates) return CUDA_ERROR_INVALID_VALUE;
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
             : attribute == CU_DEVICE_ATTRIBUTE_CLOCK_RATE               ? 1755000  // kHz
             : attribute == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE        ? 1593000
             : attribute == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH  ? 5120  // bits
                                                                         : 114;
    return CUDA_SUCCESS;
  };
  for (const bool says : {true, false}) {
    says_rates = says;
    const DeviceInfo device = cuda::device_info(api, 10);
    CHECK(std::abs(device.clock_ghz - (says ? 1.755 : 0)) < 1e-9);
    CHECK(std::abs(device.memory_gb_s - (says ? 2039 : 0)) < 1);  // an H100 PCIe's data sheet: 2 TB/s
  }
}

TEST_CASE("what a capture on any thread would forbid runs in the relaxed mode, which then ends", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  use(*cuda::make_backend(api));
  CHECK(FakeDriver::unsafe_modes == std::set{CU_STREAM_CAPTURE_MODE_RELAXED});
  CHECK(FakeDriver::capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_CASE("whichever driver call fails, there is an Error and nothing stays changed", "[cuda]") {
  const cuda::DriverApi api = FakeDriver::api();
  int failed = 0;
  for (int call = 1;; ++call) {
    FakeDriver::reset();
    FakeDriver::failing_call = call;
    FakeDriver::failure = call % 2 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY;
    const CUcontext own = FakeDriver::context(5);
    bool threw = false;
    try {
      const auto backend = cuda::make_backend(api);
      FakeDriver::current = own;
      use(*backend);
    } catch (const Error& error) {
      threw = true;
      INFO("call " << call << ": " << error.what());
      CHECK_THAT(error.what(), ContainsSubstring("CUDA_ERROR") && ContainsSubstring("; "));
      CHECK_FALSE(error.call().empty());
      if (call % 2 == 0) CHECK(error.code() == ErrorCode::out_of_memory);
      ++failed;
    }
    INFO("call " << call);
    CHECK((FakeDriver::current == own || FakeDriver::current == nullptr));
    CHECK(FakeDriver::stack.empty());
    CHECK(FakeDriver::capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK(FakeDriver::retained == 0);
    if (FakeDriver::calls < call) {  // got to the end without a failure
      CHECK_FALSE(threw);
      CHECK(FakeDriver::alive.empty());
      break;
    }
  }
  CHECK(failed > 50);
}

TEST_CASE("what outlives the driver is destroyed without a word", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  auto backend = cuda::make_backend(api);
  auto kernel = backend->load(KernelBinary(), 0);
  void* memory = backend->allocate(16);
  const Stream stream = backend->create_stream();
  void* event = backend->create_event();
  FakeDriver::shut_down = true;
  kernel.reset();
  backend->release(memory);
  backend->destroy_stream(stream);
  backend->destroy_event(event);
  CHECK(error_of([&] { backend->allocate(16); }).code() == ErrorCode::launch_failed);
  backend.reset();
  CHECK(FakeDriver::stack.empty());
}

TEST_CASE("a kernel that needs more than 48 KB of shared memory is announced to the driver", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  const auto backend = cuda::make_backend(api);
  FakeDriver::log.clear();
  const KernelBinary binary{.code = "cubin", .entry = "entry", .architecture = "sm_90a", .compiler = "nvrtc 13.0"};
  backend->load(binary, 48 << 10);
  CHECK(FakeDriver::log == std::vector<std::string>{"function entry"});
  const auto kernel = backend->load(binary, 200 << 10);
  CHECK(FakeDriver::log.back() == "attribute " + std::to_string(int(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)) +
                                      " = " + std::to_string(200 << 10));
  backend->launch(*kernel, LaunchGrid{.grid = 132, .threads = 384, .smem_bytes = 200 << 10},
                  bytes_of(device::Arguments{}), nullptr);
  CHECK(FakeDriver::log.back() == "launch 132 x 384, 204800 bytes");

  FakeDriver::failing_call = FakeDriver::calls + 3;  // after cuCtxGetCurrent and cuCtxPushCurrent
  FakeDriver::failure = CUDA_ERROR_INVALID_IMAGE;
  const Error refused = error_of([&] { backend->load(binary, 0); });
  CHECK(refused.code() == ErrorCode::load_failed);
  CHECK_THAT(refused.what(), ContainsSubstring("CUDA 12.4") && ContainsSubstring("nvrtc 13.0"));
  FakeDriver::failing_call = FakeDriver::calls + 3;
  FakeDriver::failure = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CHECK(error_of([&] { backend->load(binary, 0); }).code() == ErrorCode::not_capturable);
}

TEST_CASE("how many clusters a card runs at once is what its driver says, and else that of another card", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  FakeDriver::clustered_sms = 116;
  const auto sms_of = [&](int cluster) { return usable_sms(cluster, cuda::make_backend(api)->device()); };
  CHECK(sms_of(1) == 132);
  CHECK(sms_of(2) == 116);
  CHECK(sms_of(4) == 116);
  CHECK(sms_of(8) == 112);
  FakeDriver::clustered_sms = 1000;
  CHECK(sms_of(4) == 132);
  FakeDriver::most_clustered = 2;
  CHECK(sms_of(4) == 120);

  // Whichever of its calls fails.
  FakeDriver::reset();
  cuda::make_backend(api).reset();
  const int calls = FakeDriver::calls;
  int unknown = 0;
  for (int failing = 1; failing <= calls; ++failing) {
    FakeDriver::reset();
    FakeDriver::clustered_sms = 116;
    FakeDriver::failing_call = failing;
    FakeDriver::failure = CUDA_ERROR_NOT_SUPPORTED;
    try {
      unknown += sms_of(4) == 120;
    } catch (const Error&) {  // of another call
    }
  }
  CHECK(unknown == 3 + 7);  // to load the kernel; of each size
}

TEST_CASE("the driver is asked whether a stream's clusters, or blocks, can be resident", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  const auto backend = cuda::make_backend(api);
  const auto kernel =
      backend->load({.code = "cubin", .entry = "f", .architecture = "sm_90a", .compiler = "nvrtc"}, 100 << 10);
  const auto part = reinterpret_cast<Stream>(std::uintptr_t(0x70));
  FakeDriver::most_clustered_on = {{part, 2}};
  const auto fits = [&](int cluster, Stream stream) {
    return backend->can_be_resident(*kernel, {.cluster = cluster, .grid = 8, .threads = 256, .smem_bytes = 100 << 10},
                                    stream);
  };
  for (const int cluster : {1, 2, 4, 8}) {
    CHECK(fits(cluster, nullptr));
    CHECK(fits(cluster, part) == (cluster <= 2));
    if (cluster > 1) CHECK(FakeDriver::log.back() == "clusters of " + std::to_string(cluster));
  }
  FakeDriver::most_smem_bytes = 99 << 10;
  CHECK_FALSE(fits(1, nullptr));
}

TEST_CASE("a tensor map has its sizes in elements, its stride in bytes and the 128-byte swizzle", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  const auto backend = cuda::make_backend(api);
  alignas(16) char memory[16];
  TensorMapSpec spec{.address = memory,
                     .type = bf16,
                     .inner = 100,
                     .outer = 300,
                     .batch = 7,
                     .stride = 104,
                     .batch_stride = 40000,
                     .box_inner = 64,
                     .box_outer = 128};
  const device::TensorMap map = backend->encode_tensor_map(spec);
  CHECK(map.opaque[0] == 0x5a);
  CHECK(map.opaque[127] == 0x5a);
  const std::string rest = " box 64 128 1 swizzle " + std::to_string(int(CU_TENSOR_MAP_SWIZZLE_128B)) + " fill 0";
  const std::string type = "map type " + std::to_string(int(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16));
  CHECK(FakeDriver::log.back() == type + " rank 3 sizes 100 300 7 strides 208 80000" + rest);
  spec.batch = 1;
  spec.batch_stride = 3;  // does not matter, and must not reach the driver
  backend->encode_tensor_map(spec);
  CHECK(FakeDriver::log.back() == type + " rank 3 sizes 100 300 1 strides 208 208" + rest);
  spec.outer = 1;
  spec.stride = std::int64_t(1) << 48;  // nor does that of one row
  backend->encode_tensor_map(spec);
  CHECK(FakeDriver::log.back() == type + " rank 3 sizes 100 1 1 strides 208 208" + rest);
}

TEST_CASE("a pointer that the device cannot use is refused by the operand's name", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  const auto backend = cuda::make_backend(api);
  int anything = 0;
  const auto refused = [&](const char* name, const void* pointer = nullptr) {
    const Error error = error_of([&] { backend->check_pointer(pointer ? pointer : &anything, name, nullptr); });
    CHECK(error.code() == ErrorCode::invalid_operand);
    CHECK_THAT(error.what(), ContainsSubstring(std::string("operand ") + name));
    return std::string(error.what());
  };
  const auto accepted = [&](const void* pointer = nullptr) {
    CHECK_NOTHROW(backend->check_pointer(pointer ? pointer : &anything, "A", nullptr));
  };
  accepted();

  // Another device's: what cuMemAlloc gave is seen with peer access, the other kinds always, but only accessible once
  // that is set.
  using Made = FakeDriver::Made;
  FakeDriver::pointer_device = 1;
  for (const Made made : {Made::by_allocation, Made::from_pool, Made::by_mapping}) {
    for (const bool seen : {false, true}) {
      for (const CUmemAccess_flags access :
           {CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}) {
        CAPTURE(int(made), seen, int(access));
        FakeDriver::pointer_made = made;
        FakeDriver::pointer_seen = seen;
        FakeDriver::pointer_access = access;
        if (seen && (made == Made::by_allocation || access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
          accepted();
        else
          CHECK_THAT(refused("bias"), ContainsSubstring("another device") && ContainsSubstring("peer access"));
      }
    }
  }
  FakeDriver::pointer_device = 0;

  FakeDriver::memory_type = CU_MEMORYTYPE_HOST;  // page-locked
  accepted();
  FakeDriver::pointer_seen = false;
  CHECK_THAT(refused("A"), ContainsSubstring("cuMemHostGetDevicePointer"));

  // What the driver does not know is host memory, but in a capture it may be memory that the graph will allocate.
  FakeDriver::memory_type = 0;
  void* const reserved = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK_THAT(refused("D"), ContainsSubstring("D points to host"));
  refused("A", reserved);
  FakeGraphs::begin(nullptr);
  accepted(reserved);
  refused("A");
  FakeGraphs::destroy(FakeGraphs::end(nullptr));
  munmap(reserved, 4096);

  FakeDriver::managed = 1;
  accepted();
}

TEST_CASE("filling with random values covers every element", "[cuda]") {
  FakeDriver::reset();
  const cuda::DriverApi api = FakeDriver::api();
  const auto backend = cuda::make_backend(api);
  void* memory = backend->allocate(1);
  for (std::int64_t elements : {std::int64_t(0), std::int64_t(1), std::int64_t(4097), std::int64_t(50000000)}) {
    FakeDriver::log.clear();
    backend->fill_random(memory, elements, f32, 7);
    std::int64_t bytes = 0;
    for (const std::string& line : FakeDriver::log) bytes += std::stoll(line.substr(5));
    CHECK(bytes == elements * 4);
    CHECK(FakeDriver::log.size() <= std::size_t(2 + elements / (1 << 21)));
  }
  backend->release(memory);
}
