#include <jitgemm/jitgemm.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() try {
  constexpr int size = 32;
  jitgemm::Context context({.device = jitgemm::Device::emulator, .tuning = jitgemm::Tuning::off});
  const std::vector<std::uint16_t> ones(size * size, 0x3c00);
  std::vector<float> d(size * size);
  context.gemm({.m = size, .n = size, .k = size, .d = jitgemm::f32},
               {.a = ones.data(), .b = ones.data(), .d = d.data()});
  for (const float x : d)
    if (x != size) return 1;
  try {
    context.plan({.m = -1, .n = 512, .k = 512});
  } catch (const jitgemm::Error& error) {  // the type crosses the library's border
    return error.code() == jitgemm::ErrorCode::invalid_problem ? 0 : 1;
  }
  return 1;
} catch (const jitgemm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
