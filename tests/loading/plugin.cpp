// A shared object that uses the library, for programs that open it.
#include <jitgemm/jitgemm.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

/// Multiplies on the emulator; 0 if the product is right.
extern "C" __attribute__((visibility("default"))) int plugin_multiply() try {
  constexpr int size = 32;
  jitgemm::Context context({.device = jitgemm::Device::emulator, .tuning = jitgemm::Tuning::off});
  const std::vector<std::uint16_t> ones(size * size, 0x3c00);
  std::vector<float> d(size * size);
  context.gemm({.m = size, .n = size, .k = size, .d = {jitgemm::f32}},
               {.a = ones.data(), .b = ones.data(), .d = d.data()});
  for (const float x : d)
    if (x != size) return 1;
  return 0;
} catch (const jitgemm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}

/// Something that runs no kernel, for threads with small stacks; the length of a text.
extern "C" __attribute__((visibility("default"))) int plugin_describe() {
  return static_cast<int>(jitgemm::to_string(jitgemm::ErrorCode::io).size());
}
