#include <string>
#include <vector>

#include "catch.hpp"
#include "cuda_fixtures.hpp"
#include "errors.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::vector<Problem> problems{{.m = 256, .n = 192, .k = 512}, {.m = 200, .n = 136, .k = 511}};

std::size_t bytes_of_a(const Problem& problem) { return std::size_t(problem.m * problem.k) * 2; }
std::size_t bytes_of_d(const Problem& problem) { return std::size_t(problem.m * problem.n) * 2; }

/// Memory of the second device, as each of the driver's three allocators makes it.
class PeerMemory {
 public:
  enum class Made { by_allocation, from_pool, by_mapping };

  PeerMemory(const GraphApi& api, Made made, std::size_t bytes)
      : api_(api), made_(made), bytes_((bytes + granularity - 1) / granularity * granularity) {
    const PrimaryContext peer(1);
    if (made == Made::by_allocation) {
      require(cuda::driver().mem_alloc(&address_, bytes_));
    } else if (made == Made::from_pool) {
      require(api.mem_alloc_async(&address_, bytes_, nullptr));
      require(cuda::driver().stream_synchronize(nullptr));
    } else {
      CUmemAllocationProp properties{};
      properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      properties.location.id = 1;
      require(api.mem_create(&handle_, bytes_, &properties, 0));
      require(api.mem_reserve(&address_, bytes_, 0, 0, 0));
      require(api.mem_map(address_, bytes_, 0, handle_, 0));
      let(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
  }
  ~PeerMemory() {
    const PrimaryContext peer(1);
    if (made_ == Made::by_allocation) {
      cuda::driver().mem_free(address_);
    } else if (made_ == Made::from_pool) {
      let(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
      api_.mem_free_async(address_, nullptr);
      cuda::driver().stream_synchronize(nullptr);
    } else {
      api_.mem_unmap(address_, bytes_);
      api_.mem_address_free(address_, bytes_);
      api_.mem_release(handle_);
    }
  }
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// What a pool or a mapping lets a device do.
  void let(int device, CUmemAccess_flags flags) const {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = flags;
    if (made_ == Made::by_mapping) {
      require(api_.mem_set_access(address_, bytes_, &access, 1));
    } else {
      CUmemoryPool pool = nullptr;
      require(api_.default_mem_pool(&pool, 1));
      require(api_.mem_pool_set_access(pool, &access, 1));
    }
  }
  CUdeviceptr address() const { return address_; }
  void* pointer() const { return reinterpret_cast<void*>(address_); }

 private:
  static constexpr std::size_t granularity = std::size_t(2) << 20;  // of a mapping

  const GraphApi& api_;
  Made made_;
  std::size_t bytes_;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
};

}  // namespace

TEST_CASE("page-locked and managed memory is taken", "[gpu][context]") {
  if (cuda_devices().empty()) SKIP(no_gpu);
  const TemporaryDirectory cache;
  const auto backend = make_cuda_backend();
  const GraphApi api;
  Context context(options_in(cache));
  const PrimaryContext current;
  const OwnStream stream(*backend);
  for (const Problem& problem : problems) {
    DeviceOperands device(*backend, problem);
    const std::size_t bytes = bytes_of_a(problem);
    const auto multiply = [&](const void* a) {
      Operands operands = device.operands;
      operands.a = a;
      device.poison();
      context.gemm(problem, operands, stream);
      backend->synchronize(stream);
      CHECK(device.violation(context.plan(problem).config.main_loop) == "");
    };
    void* locked = nullptr;
    require(api.mem_alloc_host(&locked, bytes));
    backend->copy_to_host(locked, device.operands.a, bytes);
    multiply(locked);
    require(api.mem_free_host(locked));

    CUdeviceptr managed = 0;
    require(api.mem_alloc_managed(&managed, bytes, CU_MEM_ATTACH_GLOBAL));
    backend->copy_to_device(reinterpret_cast<void*>(managed), std::string(bytes, '\0').data(), bytes);
    require(api.memcpy_dtod_async(managed, reinterpret_cast<CUdeviceptr>(device.operands.a), bytes, stream));
    multiply(reinterpret_cast<const void*>(managed));
    backend->release(reinterpret_cast<void*>(managed));
  }
}

TEST_CASE("another device's memory is taken once it can be reached, and refused before", "[gpu][context]") {
  if (cuda_devices().size() < 2) SKIP("one CUDA device");
  const TemporaryDirectory cache;
  const PrimaryContext peer(1);  // kept for as long as its memory
  const PrimaryContext current;
  const auto backend = make_cuda_backend();
  const GraphApi api;
  const OwnStream stream(*backend);
  using Made = PeerMemory::Made;
  for (const Made made : {Made::by_allocation, Made::from_pool, Made::by_mapping}) {
    for (const Problem& problem : problems) {
      INFO("made " << int(made) << ", " << to_string(problem));
      Context context(options_in(cache));
      DeviceOperands device(*backend, problem);
      const PeerMemory a(api, made, bytes_of_a(problem)), d(api, made, bytes_of_d(problem));
      Operands own = device.operands, operands = own;
      const auto refused = [&](const char* name) {
        CHECK_THAT(refusal(ErrorCode::invalid_operand, [&] { context.gemm(problem, operands, stream); }),
                   ContainsSubstring(std::string("operand ") + name) && ContainsSubstring("peer access"));
      };
      operands.a = a.pointer();
      refused("A");
      operands = own;
      operands.d = d.pointer();
      refused("D");

      if (made == Made::by_allocation) {
        require(api.enable_peer_access(peer, 0));
      } else {
        a.let(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        d.let(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      }
      operands.a = a.pointer();
      const auto copy = [&](CUdeviceptr to, const void* from, std::size_t bytes) {
        require(api.memcpy_dtod_async(to, reinterpret_cast<CUdeviceptr>(from), bytes, stream));
      };
      copy(a.address(), own.a, bytes_of_a(problem));
      copy(d.address(), own.d, bytes_of_d(problem));  // poison
      context.gemm(problem, operands, stream);
      copy(reinterpret_cast<CUdeviceptr>(own.d), d.pointer(), bytes_of_d(problem));
      backend->synchronize(stream);
      CHECK(device.violation(context.plan(problem).config.main_loop) == "");

      if (made == Made::by_allocation) require(api.disable_peer_access(peer));
    }
  }
}
