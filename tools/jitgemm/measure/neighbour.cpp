#include "measure/neighbour.hpp"

#include <string>

#include "backend/backend.hpp"

namespace jitgemm::cli {
namespace {

constexpr int threads = 256;
constexpr int large_waves = 3;
constexpr std::size_t large_smem_bytes = std::size_t(120) << 10;  ///< two such blocks exceed the 228 KiB of an SM

/// As elementwise kernels do: each thread reads, computes and writes one number.
constexpr const char* small_text = R"(
extern "C" __global__ void __launch_bounds__(256) small_neighbour(float* memory) {
  const unsigned i = blockIdx.x * 256 + threadIdx.x;
  memory[i] = memory[i] * 0.5f + 1.0f;
}
)";

/// Each block works in shared memory for some 6.5 us, which the SM's clock counts: the device's timer may tick too
/// rarely.
constexpr const char* large_text = R"(
extern "C" __global__ void __launch_bounds__(256) large_neighbour(float* memory) {
  extern __shared__ float room[];
  volatile float* const mine = room + threadIdx.x;
  const unsigned i = blockIdx.x * 256 + threadIdx.x;
  float x = memory[i];
  const long long begin = clock64();
  for (unsigned at = 0; clock64() - begin < 11500; at = at + 256 < 30720 ? at + 256 : 0) {
    mine[at] = x;
    x = mine[at] * 0.5f + 1.0f;
  }
  memory[i] = x;
}
)";

bool is_large(Neighbour::Size size) { return size == Neighbour::Size::large; }

}  // namespace

Neighbour::Neighbour(Backend& backend, Size size)
    : blocks_(backend.device().sm_count * (is_large(size) ? large_waves : 1)),
      memory_(backend, std::size_t(blocks_) * threads * sizeof(float)),
      kernel_(backend, is_large(size) ? large_text : small_text, is_large(size) ? "large_neighbour" : "small_neighbour",
              is_large(size) ? large_smem_bytes : 0) {
  backend.zero(memory_.data(), memory_.bytes());
}

void Neighbour::launch(Stream stream) const {
  void* memory = memory_.data();
  void* parameters[] = {&memory};
  kernel_.launch(blocks_, threads, parameters, stream);
}

}  // namespace jitgemm::cli
