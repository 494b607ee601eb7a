// Fixed-width integers, the element types that C++ lacks as their bit patterns, where a bias and pairs of columns lie,
// what scales, groups and shards are, and a problem's scalars. Plain C++, also compiled on the host.
#pragma once

namespace jitgemm::device {

using s8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

struct F16 {
  u16 bits;
};
struct BF16 {
  u16 bits;
};
struct TF32 {
  u32 bits;  // of a float
};
struct E4M3 {
  u8 bits;
};
struct E5M2 {
  u8 bits;
};

enum class Bias { none, along_n, along_m };
enum class Scaling { value, vector, block_1x128, block_128x128 };
constexpr bool is_of_blocks(Scaling scaling) {
  return scaling == Scaling::block_1x128 || scaling == Scaling::block_128x128;
}

/// Whether a problem's matrices are groups that the device alone can count, and how memory says so: where each group's
/// rows end, one after the other in one matrix; how many rows each matrix of a batch has; or where each group ends
/// along k, of one A and one B.
enum class Grouping { none, offsets, counts, along_k };

/// Which columns of the product, N wide, are one of D, N / 2 wide, if two are: j and N / 2 + j, or 2j and 2j + 1.
enum class Pairing { none, halves, neighbours };

/// Of a product that the ranks of a node compute together, each for itself the rows of all or of one, in shards of as
/// many rows: A's come from the rank that each is of, while the kernel runs, or D's go to it, to be added up there.
enum class Sharding { none, gathered_a, scattered_d };

/// A T for each number that the epilogue computes with, in the order of src/core/problem_fields.hpp: from there the
/// host fills them in.
template <typename T>
struct Scalars {
  T alpha, beta, slope;  // slope: of an activation that takes one
};

/// One vector access of 16 bytes.
struct alignas(16) U32x4 {
  u32 x, y, z, w;
};

}  // namespace jitgemm::device
