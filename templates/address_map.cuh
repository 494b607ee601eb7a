// A tensor map of all addresses, for matrices that lie where pointers on the device say: two dimensions, one of steps of
// 16 bytes and one of steps of 2^35, stand in the place of the matrix's number, so that a pointer becomes coordinates.
// Nothing on the device edits a map, and a graph that is replayed reads the pointers that are there then. Plain C++, also
// compiled on the host, which encodes it.
#ifndef JITGEMM_ADDRESS_MAP_CUH
#define JITGEMM_ADDRESS_MAP_CUH
#include "types.cuh"

namespace jitgemm::device {

/// The least address of such a map, which the driver wants to be none of 0 and a multiple of 16 bytes.
constexpr u64 FIRST_ADDRESS = 16;
/// Bytes, and how many there are: coordinates are of 31 bits, strides less than 2^40.
constexpr u64 LOW_STEP = 16, LOW_COUNT = 1ull << 31, HIGH_STEP = LOW_STEP * LOW_COUNT, HIGH_COUNT = 1ull << 22;

/// Coordinates of an address of a multiple of 16 bytes. Of address 0 they are out of bounds, where a map has zeros.
struct AddressPlace {
  int low, high;
};
constexpr AddressPlace place_of_address(u64 address) {
  if (address < FIRST_ADDRESS) return {0, -1};
  const u64 offset = address - FIRST_ADDRESS;
  return {int(offset / LOW_STEP % LOW_COUNT), int(offset / HIGH_STEP)};
}

}  // namespace jitgemm::device

#endif
