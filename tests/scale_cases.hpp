#pragma once

#include <array>
#include <cstdint>

#include "gemm_runs.hpp"
#include "jitgemm/jitgemm.hpp"

namespace jitgemm::test::scales {

/// Vectors on both sides, or on one beside a single value.
inline constexpr std::array sides{std::array{Scaling::vector, Scaling::vector},
                                  std::array{Scaling::vector, Scaling::value},
                                  std::array{Scaling::value, Scaling::vector}};

inline constexpr Scaling rows_of_blocks = Scaling::block_1x128, squares = Scaling::block_128x128;
inline constexpr std::array blocks{std::array{rows_of_blocks, squares}, std::array{rows_of_blocks, rows_of_blocks},
                                   std::array{squares, rows_of_blocks}, std::array{squares, squares}};

inline void scale(Problem& problem, std::array<Scaling, 2> how) {
  problem.a.scaling = how[0];
  problem.b.scaling = how[1];
}

inline KernelConfig tile_of(MainLoop main_loop) {
  KernelConfig config = small_tile(main_loop);
  config.block_k *= 2;  // of 8-bit elements
  return config;
}

/// m x n from k, both sides scaled by vectors.
inline Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DataType a = e4m3, DataType d = bf16) {
  Problem problem{.m = m, .n = n, .k = k, .a = {a}, .b = {.type = a, .layout = Layout::column_major}, .d = {d}};
  scale(problem, sides[0]);
  return problem;
}

}  // namespace jitgemm::test::scales
