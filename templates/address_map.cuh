// A tensor map of all addresses, for matrices that lie where pointers on the device say: two dimensions, one of steps
// of 16 bytes and one of steps of 2^35, stand in the place of the matrix's number, so that a pointer becomes
// coordinates. Nothing on the device edits a map, and a graph that is replayed reads the pointers that are there then.
// Plain C++, also compiled on the host, which encodes it.
#ifndef JITGEMM_ADDRESS_MAP_CUH
#define JITGEMM_ADDRESS_MAP_CUH
#include "types.cuh"

namespace jitgemm::device {

/// Bytes, and how many there are: coordinates are of 31 bits, strides less than 2^40, and all together 2^64, so that
/// what lies before the map's own address is reached, too (seen on an H100).
constexpr u64 LOW_STEP = 16, LOW_COUNT = 1ull << 31, HIGH_STEP = LOW_STEP * LOW_COUNT, HIGH_COUNT = 1ull << 29;

/// The map's own address is memory that there is, the table's of the pointers: a box that has nothing in bounds reads
/// there (an H100 calls anything else an illegal address).
constexpr u64 map_address(u64 table) { return table / LOW_STEP * LOW_STEP; }

/// Coordinates of an address of a multiple of 16 bytes. Of address 0 they are out of bounds, where a map has zeros.
struct AddressPlace {
  int low, high;
};
constexpr AddressPlace place_of_address(u64 address, u64 table) {
  if (address == 0) return {0, -1};
  const u64 offset = address - map_address(table);
  return {int(offset / LOW_STEP % LOW_COUNT), int(offset / HIGH_STEP)};
}

}  // namespace jitgemm::device

#endif
