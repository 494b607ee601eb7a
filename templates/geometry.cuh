// What a kernel fixes at compile time, as numbers. A main loop's geometry (geometry_sm80.cuh, geometry_sm90.cuh) and
// its rules follow from them, in one text for the kernel, the host and the tests.
#ifndef JITGEMM_GEOMETRY_CUH
#define JITGEMM_GEOMETRY_CUH

namespace jitgemm::device {

/// A configuration with what it depends on of the problem as the kernel sees it. Sizes are of elements, in bytes.
struct KernelParameters {
  int block_m, block_n, block_k;  // tile of D, depth of a k-block
  int stages, warps;              // k-blocks in shared memory; warps that multiply
  int cluster_m, cluster_n, cluster_k;
  bool cluster_at_launch;  // the kernel takes cluster_m and cluster_n from there, and is made as if they were 1
  bool ping_pong, swap_ab;
  bool one_tile;  // a CTA has one tile, and all of its k-blocks
  bool split_k;   // every tile is cut into as many parts along k
  bool promoted;  // f32 additions after each k-block
  bool tensor_cores;
  int size_a, size_accumulator, size_d;  // bytes; B's elements are as large as A's
  bool a_k_major, b_k_major;             // else M-major, N-major
  int align_a, align_b, align_d;
  bool block_scales;               // of A and B: each k-block's sums are multiplied by them
  bool row_scales, column_scales;  // of A one for each row, of B one for each column
  bool groups_of_rows;             // a tile has rows of one group, which may end anywhere in it
  bool offset_groups;              // and begins anywhere
  bool scales_d;                   // D gets scales of its own, one for each row and 128 columns
  bool pairs;                      // two columns of the product, with swap_ab two rows, are one of D
  bool narrows;                    // tiles are as narrow as their group's rows let them be
  bool fetches;                    // CTAs take the next tile when they are done with one, from a counter
  bool scatters_d;                 // tiles go to other ranks

  /// Rows and columns of the kernel's product that are one of D's.
  constexpr int row_fold() const { return pairs && swap_ab ? 2 : 1; }
  constexpr int column_fold() const { return pairs && !swap_ab ? 2 : 1; }
};

constexpr int max_of(int x, int y) { return x > y ? x : y; }
constexpr int common_divisor(int x, int y) { return y == 0 ? x : common_divisor(y, x % y); }
constexpr bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

/// What the widths of tiles that narrow are multiples of, up to the widest: each is a loop of its own. Of 192 rows a
/// group, multiples of 32 took 3 % longer (NOTES.md, 66).
constexpr int width_step = 16;

/// The first rule of each family: behind it no product of two of these, in bytes, wraps.
constexpr bool are_in_range(const KernelParameters& p) {
  const int sizes[] = {p.block_m, p.block_n, p.block_k, p.stages, p.warps};
  for (int x : sizes)
    if (x < 1 || x > 1024) return false;
  return true;
}

}  // namespace jitgemm::device
#endif
