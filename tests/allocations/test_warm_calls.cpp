// A warm call takes no memory from the heap. A program of its own, since it replaces operator new.
#include "allocations/counted_new.hpp"
#include "backend/cuda/cuda_backend.hpp"
#include "catch.hpp"
#include "fake_gpu.hpp"
#include "fake_nvrtc.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sample_configs.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

/// A CUDA device that is none. Its driver takes no memory for launches and tensor maps: those are counted that the
/// library takes.
class Fixture {
 public:
  Fixture() {
    FakeDriver::reset();
    FakeNvrtc::reset();
    launches = 0;
    driver_.launch_kernel_ex = [](const CUlaunchConfig*, CUfunction, void**, void**) {
      return ++launches, CUDA_SUCCESS;
    };
    driver_.tensor_map_encode_tiled = [](CUtensorMap*, auto...) { return CUDA_SUCCESS; };
    driver_.device_get_attribute = FakeGpu::api().device_get_attribute;
    cuda::driver_for_tests = &driver_;
    cuda::nvrtc_for_tests = &nvrtc_;
    context.emplace(ContextOptions{.tuning = Tuning::off, .cache_dir = cache_.path().string()});
  }
  ~Fixture() {
    context.reset();
    cuda::driver_for_tests = nullptr;
    cuda::nvrtc_for_tests = nullptr;
    FakeDriver::reset();
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  /// Of many calls, after some that warm it up.
  template <typename Call>
  static long allocations_of(Call&& call) {
    for (int i = 0; i < 3; ++i) call();
    const long before = allocations;
    for (int i = 0; i < 20; ++i) call();
    return allocations - before;
  }
  /// Launches of a warm call.
  template <typename Call>
  static int launches_of(Call&& call) {
    launches = 0;
    call();
    return launches;
  }

  static inline int launches = 0;
  std::optional<Context> context;

 private:
  const TemporaryDirectory cache_;
  cuda::DriverApi driver_ = FakeDriver::api();
  cuda::NvrtcApi nvrtc_ = FakeNvrtc::api();
};

/// Matrices that nothing reads, 2^40 bytes apart, `offset` bytes past an address that any alignment divides.
Operands operands_at(std::uintptr_t offset = 0) {
  const auto matrix = [offset](std::uintptr_t i) { return reinterpret_cast<void*>((i << 40) + offset); };
  return {.a = matrix(1), .b = matrix(2), .c = matrix(3), .d = matrix(4), .bias = matrix(5)};
}

struct Case {
  std::string what;
  Problem problem;
  std::optional<KernelConfig> config = {};
  std::uintptr_t offset = 0;
  int launches = 1;
};

std::vector<Case> cases() {
  const Problem plain{.m = 512, .n = 384, .k = 1024}, odd{.m = 131, .n = 67, .k = 301};
  Problem full = plain;
  full.batch = 3;
  full.beta = 0.5;
  full.alpha = 3;
  full.epilogue.bias = Bias::along_n;
  full.epilogue.activation = Activation::gelu_tanh;
  Problem fp8 = plain;
  fp8.a = {e4m3};
  fp8.b = {.type = e4m3, .layout = Layout::column_major};
  Problem large = odd;
  large.m = large.n = 20001, large.k = 4001;
  KernelConfig packed = sm90_config;
  packed.pack_a = packed.pack_b = true;
  KernelConfig swapped = sm90_config;
  swapped.swap_ab = true;
  return {
      {"chosen", plain},
      {"chosen, batched and with an epilogue", full},
      {"chosen, 8-bit", fp8},
      {"chosen, of any alignment", odd, {}, 2, -1},
      {"portable", plain, sm80_config},
      {"portable, batched and with an epilogue", full, sm80_config},
      {"portable, unaligned", odd, sm80_config, 2},
      {"Hopper's", plain, sm90_config},
      {"Hopper's, swapped", plain, swapped},
      {"Hopper's, batched and with an epilogue", full, sm90_config},
      {"packed", odd, packed, 2, 2},
      {"packed, in slabs", large, packed, 2, -1},
      {"with a workspace", plain, with_schedule(sm90_config, Schedule::split_k, 4, 0)},
      {"portable, with a workspace", plain, with_schedule(sm80_config, Schedule::stream_k, 1, 7)},
      {"packed, with a workspace of partial tiles, too", odd, with_schedule(packed, Schedule::split_k, 2, 0), 2, 2},
  };
}

void call(Context& context, const Case& one, const Operands& operands, Stream stream = nullptr) {
  if (one.config)
    context.gemm(one.problem, operands, stream, *one.config);
  else
    context.gemm(one.problem, operands, stream);
}

}  // namespace

TEST_CASE("Allocations are counted", "[allocations]") {
  const long before = allocations;
  const auto made = std::make_unique<std::string>(100, 'x');
  struct alignas(64) Aligned {
    char bytes[64];
  };
  const auto aligned = std::make_unique<Aligned>();
  CHECK(allocations - before == 3);
}

TEST_CASE("A warm call allocates nothing, whatever it computes and however", "[allocations][context]") {
  Fixture f;
  for (const Case& one : cases()) {
    INFO(one.what);
    const Operands operands = operands_at(one.offset);
    const auto again = [&] { call(*f.context, one, operands); };
    CHECK(f.allocations_of(again) == 0);
    if (one.launches > 0)
      CHECK(f.launches_of(again) == one.launches);
    else if (one.config)
      CHECK(f.launches_of(again) >= 8);  // two a slab
  }
}

TEST_CASE("A warm call allocates nothing where other problems, streams and operands come in between",
          "[allocations][context]") {
  Fixture f;
  const std::vector<Case> all = cases();
  CHECK(f.allocations_of([&] {
    for (const std::uintptr_t stream : {0, 0x100, 0x200}) {
      for (const Case& one : all) {
        for (const std::uintptr_t elsewhere : {0, 4096})
          call(*f.context, one, operands_at(one.offset + elsewhere), reinterpret_cast<Stream>(stream));
      }
    }
  }) == 0);
}

TEST_CASE("A warm call with the caller's workspace allocates nothing", "[allocations][context]") {
  Fixture f;
  for (const Case& one : cases()) {
    INFO(one.what);
    Operands operands = operands_at(one.offset);
    operands.workspace = reinterpret_cast<void*>(std::uintptr_t(6) << 40);
    operands.workspace_bytes = one.config ? f.context->workspace_size(one.problem, *one.config) : 1 << 30;
    CHECK(f.allocations_of([&] { call(*f.context, one, operands); }) == 0);
    if (one.config) continue;
    operands.workspace_bytes = 256;  // what would be chosen without it may need more
    CHECK(f.allocations_of([&] { call(*f.context, one, operands); }) == 0);
  }
}
