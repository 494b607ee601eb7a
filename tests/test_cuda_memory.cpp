// What the CUDA backend does with memory on a driver that is none: random contents, tensor maps, pointers that are
// refused.
#include <sys/mman.h>

#include <cmath>
#include <set>

#include "backend/cuda/cuda_backend.hpp"
#include "catch.hpp"
#include "core/data_types.hpp"
#include "core/element.hpp"
#include "errors.hpp"
#include "fake_driver.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

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
