#pragma once

#include "core/problem.hpp"
#include "jitgemm/kernel_config.hpp"
#include "kernels/launch_shape.hpp"

namespace jitgemm {

/// Most bytes of the workspace that packed operands may take. Larger ones are packed and multiplied slab by slab.
inline constexpr std::size_t max_packed_bytes = std::size_t(64) << 20;

/// Whether the sm90 main loop takes the operand only packed: TMA addresses 16-byte aligned rows less than 2^40 bytes
/// apart, and wgmma takes other than 16-bit elements K-major.
bool needs_packing_a(const NormalProblem& normalised);
bool needs_packing_b(const NormalProblem& normalised);

/// Whether packing puts columns of B that are pairs side by side: where B stays N-major. Rows of a K-major one are so
/// copied by TMA.
bool interleaves_b(const NormalProblem& normalised);

inline bool packs(const KernelConfig& config) { return config.pack_a || config.pack_b; }

/// Whether packing turns columns of the operand into rows.
bool transposes_a(const NormalProblem& normalised, const KernelConfig& config);
bool transposes_b(const NormalProblem& normalised, const KernelConfig& config);

/// The problem of the copies: layout, leading dimension, batch stride and alignment of packed operands are those of
/// the copy. A problem without packed operands stays as it is.
NormalProblem packed_problem(const NormalProblem& normalised, const KernelConfig& config);

/// The part of D that is computed at once: all of it, or as many rows and columns, whole tiles, as have packed operands
/// of at most max_packed_bytes. Each slab is a launch of both kernels. 0 rows: not even a tile's operands fit.
struct Slab {
  std::int64_t rows, columns;
};
Slab slab_of(const NormalProblem& normalised, const KernelConfig& config);
/// The largest slab as a problem, and how many there are; the problem itself where not even a tile's operands fit.
NormalProblem slab_problem(const NormalProblem& normalised, const Slab& slab);
std::int64_t slab_count(const NormalProblem& normalised, const Slab& slab);
inline bool is_whole(const Slab& slab, const NormalProblem& normalised) {
  return slab.rows == normalised.m && slab.columns == normalised.n;
}

/// The copies of the first, largest slab, as they lie in the workspace: offsets from LaunchShape::packed_offset(),
/// multiples of 256. B comes first, so that slabs with different rows find it in one place.
struct Packing {
  std::size_t offset_a = 0, offset_b = 0, bytes = 0;
  LaunchGrid launch;               ///< of the packing kernel
  int blocks_a = 0, blocks_b = 0;  ///< of its grid
};

Packing packing_of(const NormalProblem& normalised, const KernelConfig& config);

}  // namespace jitgemm
