// How a vector along the kernel's columns comes to a warp that finishes all of COLUMNS columns: two elements a lane,
// and from lane to lane. A load of each element that a lane needs, under the predicate that D has it, is 16 loads that
// wait one by one where a tile reaches beyond D, and 16 registers.
#pragma once
#include "fragment.cuh"
#include "ide.cuh"
#include "memory.cuh"
#include "ptx/global.cuh"
#include "ptx/warp.cuh"

namespace jitgemm::device {

template <int COLUMNS>
class WarpVector {
  static constexpr int OF_WARP = 64, PARTS = ceil_div(COLUMNS, OF_WARP);
  u32 held[PARTS][2];  // a lane's; of 16 bits, both in the first

 public:
  template <typename T>
  static constexpr int registers() {
    return PARTS * (sizeof(T) == 2 ? 1 : 2);
  }

  /// `at(i)` is where element i is; the warp's are those from `column` on, of which D has none from `end` on: the last
  /// before takes their place.
  template <typename T, typename At>
  __device__ __forceinline__ void load(const At& at, int column, int end, u32 lane) {
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const int first = column + i * OF_WARP + int(lane) * 2;
      const T *one = at(min_of(first, end - 1)), *next = at(min_of(first + 1, end - 1));
      if constexpr (sizeof(T) == 2) {
        held[i][0] = ptx::ld_global<u16>(one) | u32(ptx::ld_global<u16>(next)) << 16;
      } else {
        held[i][0] = ptx::ld_global<u32>(one);
        held[i][1] = ptx::ld_global<u32>(next);
      }
    }
  }
  /// A lane's two of the `number`th 8 columns, as a fragment has them.
  template <typename T>
  __device__ __forceinline__ void get(int number, u32 lane, ElementCompute (&x)[2]) const {
    const u32(&own)[2] = held[number * 8 / OF_WARP];
    const u32 from = number * 8 % OF_WARP / 2 + lane % 4;
    if constexpr (sizeof(T) == 2) {
      unpack(T{}, ptx::shuffle(own[0], from), x[0], x[1]);
    } else {
      x[0] = __builtin_bit_cast(T, ptx::shuffle(own[0], from));
      x[1] = __builtin_bit_cast(T, ptx::shuffle(own[1], from));
    }
  }
};

}  // namespace jitgemm::device
