#include <cstring>

#include "backend/emulator/matrix_product.hpp"
#include "backend/emulator/operations.hpp"

namespace jitgemm::emulator {

namespace {

/// Carries out the warp's mma. Word: of the accumulators, and as large as a register of a and b.
template <class Word>
void multiply(Warp& warp, TensorType a_type, TensorType b_type) {
  constexpr int size = sizeof(Word), halves = 32 / (4 * size);  // a thread has one register of each
  alignas(32) unsigned char packed_a[16][32], packed_b[8][32];
  alignas(32) Word wide_a[16 * max_depth], wide_b[8 * max_depth], by_k[max_depth * 8], sums[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const LaneArguments& its = warp.lanes[lane];
    const auto* a = static_cast<const unsigned char*>(its.a);
    const auto* b = static_cast<const unsigned char*>(its.b);
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < halves; ++half) {
      const int place = (4 * half + t) * size;
      std::memcpy(&packed_a[g][place], a + 2 * half * size, size);
      std::memcpy(&packed_a[g + 8][place], a + (2 * half + 1) * size, size);
      std::memcpy(&packed_b[g][place], b + half * size, size);
    }
    const auto* in = static_cast<const unsigned char*>(its.result);
    std::memcpy(&sums[g][2 * t], in, 2 * size);
    std::memcpy(&sums[g + 8][2 * t], in + 2 * size, 2 * size);
  }
  widen(a_type, packed_a, wide_a, sizeof packed_a);
  widen(b_type, packed_b, wide_b, sizeof packed_b);
  const int count = depth(a_type);
  for (int k = 0; k < count; ++k)
    for (int n = 0; n < 8; ++n) by_k[k * 8 + n] = wide_b[n * count + k];
  multiply_add(a_type, wide_a, by_k, sums, 16, 8);
  for (int lane = 0; lane < 32; ++lane) {
    auto* out = static_cast<unsigned char*>(warp.lanes[lane].result);
    const int g = lane / 4, t = lane % 4;
    std::memcpy(out, &sums[g][2 * t], 2 * size);
    std::memcpy(out + 2 * size, &sums[g + 8][2 * t], 2 * size);
  }
}

}  // namespace

void mma(TensorType a_type, TensorType b_type, void* d, const void* a, const void* b) {
  Thread& thread = *current;
  Warp& warp = *thread.warp;
  if (!is_pair(a_type, b_type))
    thread.launch->fault("mma of %s and %s, which tensor cores do not multiply", name_of(a_type).c_str(),
                         name_of(b_type).c_str());
  LaneArguments& mine = warp.lanes[thread.lane];
  mine.result = d;
  mine.a = a;
  mine.b = b;
  mine.a_type = a_type;
  mine.b_type = b_type;
  if (!arrive(thread, Collective::mma)) return;
  for (const LaneArguments& lane : warp.lanes)
    if (lane.a_type != a_type || lane.b_type != b_type)
      thread.launch->fault("mma: the lanes of the warp differ in their types");
  if (a_type == TensorType::f64)
    multiply<u64>(warp, a_type, b_type);
  else
    multiply<u32>(warp, a_type, b_type);
  finish_collective(warp);
}

}  // namespace jitgemm::emulator
