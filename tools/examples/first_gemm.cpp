#include <jitgemm/jitgemm.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  // The emulator takes host pointers. Without options: this thread's CUDA device.
  jitgemm::Context context({.device = jitgemm::Device::emulator});

  jitgemm::Problem problem{.m = 64, .n = 96, .k = 128, .a = {jitgemm::f16}, .b = {jitgemm::f16}, .d = {jitgemm::f32}};
  problem.epilogue.activation = jitgemm::Activation::relu;

  const std::uint16_t one = 0x3c00;  // 1.0 in f16
  std::vector<std::uint16_t> a(64 * 128, one), b(128 * 96, one);
  std::vector<float> d(64 * 96);

  context.gemm(problem, {.a = a.data(), .b = b.data(), .d = d.data()});  // chosen and compiled on first use

  std::puts(context.plan(problem).explain().c_str());  // which configuration, and why
  std::printf("d[0] = %g\n", d[0]);
  return d[0] == 128 ? 0 : 1;
}
