// The CUDA backend on a driver that is none: which contexts it works in, what of the device it knows, and calls that
// fail.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>

#include "backend/cuda/cuda_backend.hpp"
#include "catch.hpp"
#include "errors.hpp"
#include "fake_driver.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/sm90/residence.hpp"

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
