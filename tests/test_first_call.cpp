// How long the first call of a process takes. Hidden: tools/gpu_check.sh runs it in a new process each, first without
// and then with a warm kernel cache.
#include <chrono>
#include <iostream>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "jitgemm/jitgemm.hpp"

using namespace jitgemm;

namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void first_call(const char* config) {
  const auto backend = make_cuda_backend();  // creates the CUDA context
  const Problem problem{.m = 1024, .n = 1024, .k = 1024};
  const std::size_t bytes = 1024 * 1024 * 2;
  void* memory[3];
  for (void*& operand : memory) operand = backend->allocate(bytes);
  for (int i : {0, 1}) backend->fill_random(memory[i], bytes / 2, f16, i);

  const auto begin = Clock::now();
  Context context(ContextOptions{.tuning = Tuning::off});
  context.gemm(problem, {.a = memory[0], .b = memory[1], .d = memory[2]}, nullptr, parse_kernel_config(config));
  backend->synchronize(nullptr);
  const double ms = ms_since(begin);

  const bool warm = context.counters().compiles == 0;
  std::cout << "first call, " << (warm ? "warm" : "cold") << " kernel cache: " << ms << " ms (" << config << ")"
            << std::endl;
  if (warm) CHECK(ms <= 30);
  for (void* operand : memory) backend->release(operand);
}

}  // namespace

TEST_CASE("The first call of a process with the portable main loop", "[.first_call]") {
  first_call("sm80 128x128x32 group_m=8 stages=4 warps=4 schedule=data_parallel");
}

TEST_CASE("The first call of a process with the Hopper main loop", "[.first_call]") {
  first_call("sm90 128x256x64 group_m=8 stages=4 warps=8 schedule=data_parallel");
}
