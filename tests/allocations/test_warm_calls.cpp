// A warm call takes no memory from the heap. A program of its own, since it replaces operator new.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <vector>

#include "allocations/counted_new.hpp"
#include "backend/cuda/cuda_backend.hpp"
#include "c_context.hpp"
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
    context.emplace(options());
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

  ContextOptions options() const { return {.tuning = Tuning::off, .cache_dir = cache_.path().string()}; }

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

TEST_CASE("A warm call by way of C allocates nothing", "[allocations][c]") {
  Fixture f;
  const CContext context(f.options());
  for (const Case& one : cases()) {
    INFO(one.what);
    const CPlan plan(context, one.problem, one.config ? &*one.config : nullptr);
    const jitgemm_operands operands = c::to_c(operands_at(one.offset));
    jitgemm_status status = JITGEMM_STATUS_SUCCESS;
    const auto again = [&] { status = jitgemm_plan_run(plan, &operands, nullptr); };
    CHECK(f.allocations_of(again) == 0);
    CHECK(status == JITGEMM_STATUS_SUCCESS);
    if (one.launches > 0) CHECK(f.launches_of(again) == one.launches);

    const jitgemm_problem problem = c::to_c(one.problem);
    const auto config = one.config ? std::optional(c::to_c(*one.config)) : std::nullopt;
    CHECK(f.allocations_of(
              [&] { status = jitgemm_gemm(context, &problem, config ? &*config : nullptr, &operands, nullptr); }) == 0);
    CHECK(status == JITGEMM_STATUS_SUCCESS);
  }
}

namespace {

template <typename Call>
double ns_of(const Call& call) {
  constexpr int calls = 1000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / calls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

// Hidden, since it measures: allocation_tests "[.time]"
TEST_CASE("A warm call by way of C takes 0.1 us more than in C++ at most", "[.time]") {
  Fixture f;
  const CContext context(f.options());
  std::cout << "ns of a warm call to a driver that only counts, medians of 1000 rounds\n"
               "  C++    plan_run    gemm   plan_run - C++\n";
  for (const Case& one : cases()) {
    const Operands operands = operands_at(one.offset);
    const jitgemm_operands c_operands = c::to_c(operands);
    const jitgemm_problem c_problem = c::to_c(one.problem);
    const auto c_config = one.config ? std::optional(c::to_c(*one.config)) : std::nullopt;
    const CPlan plan(context, one.problem, one.config ? &*one.config : nullptr);
    std::vector<double> in_cpp, by_plan, by_gemm, more;
    for (int round = -10; round < 1000; ++round) {
      const double cpp_ns = ns_of([&] { call(*f.context, one, operands); });
      const double plan_ns = ns_of([&] { jitgemm_plan_run(plan, &c_operands, nullptr); });
      const double gemm_ns =
          ns_of([&] { jitgemm_gemm(context, &c_problem, c_config ? &*c_config : nullptr, &c_operands, nullptr); });
      if (round < 0) continue;
      in_cpp.push_back(cpp_ns);
      by_plan.push_back(plan_ns);
      by_gemm.push_back(gemm_ns);
      more.push_back(plan_ns - cpp_ns);
    }
    std::printf("%5.0f %11.0f %7.0f %+16.1f   %s\n", median(in_cpp), median(by_plan), median(by_gemm), median(more),
                one.what.c_str());
    CHECK(median(more) <= 100);
  }
}
