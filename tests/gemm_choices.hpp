#pragma once

#include <array>
#include <vector>

#include "activations.hpp"
#include "gemm_cases.hpp"
#include "random.hpp"

// What the lists of cases choose from.
namespace jitgemm::test {

inline constexpr std::array layouts{
    std::array{Layout::row_major, Layout::row_major}, std::array{Layout::row_major, Layout::column_major},
    std::array{Layout::column_major, Layout::row_major}, std::array{Layout::column_major, Layout::column_major}};
struct Types {
  DataType a, b, d;
};
inline constexpr std::array sm80_types{
    Types{f16, f16, f16},    Types{f16, f16, bf16},   Types{f16, f16, f32},   Types{bf16, bf16, f16},
    Types{bf16, bf16, bf16}, Types{bf16, bf16, f32},  Types{e4m3, e4m3, f16}, Types{e4m3, e5m2, bf16},
    Types{e5m2, e4m3, e4m3}, Types{e5m2, e5m2, e5m2}, Types{e4m3, e4m3, f32}, Types{tf32, tf32, f32},
    Types{s8, s8, s32},      Types{s8, s8, bf16},     Types{f32, f32, f32},   Types{f64, f64, f64}};
inline constexpr int first_8_bit_type = 6;
/// Of them: wgmma has the rest not.
inline constexpr std::size_t sm90_type_count = [] {
  std::size_t count = 0;
  while (sm80_types[count].a != f32) ++count;
  return count;
}();
inline constexpr std::array aligns{16, 8, 4, 2};  // bytes; of 8-bit elements 2 stands for 1
inline constexpr auto activations = [] {
  std::array<Activation, expected_activations.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = expected_activations[i].activation;
  return all;
}();
inline constexpr std::array biases{Bias::none, Bias::along_n, Bias::along_m};
inline constexpr std::array group_sizes{0, 1, 2, 8};

struct ScheduleChoice {
  Schedule schedule;
  int splits, grid;
};
inline constexpr std::array schedules{
    ScheduleChoice{Schedule::data_parallel, 1, 0},     ScheduleChoice{Schedule::persistent, 1, 3},
    ScheduleChoice{Schedule::split_k, 2, 0},           ScheduleChoice{Schedule::split_k, 5, 7},
    ScheduleChoice{Schedule::stream_k, 1, 3},          ScheduleChoice{Schedule::stream_k, 1, 11},
    ScheduleChoice{Schedule::stream_k_one_tile, 1, 4}, ScheduleChoice{Schedule::stream_k_two_tile, 1, 2},
    ScheduleChoice{Schedule::stream_k_two_tile, 1, 3},
};

/// block_k in 16-bit elements.
struct Tile {
  int block_m, block_n, block_k, stages, warps;
};

void apply(const Tile& tile, DataType a, KernelConfig& config);
void apply(const ScheduleChoice& choice, KernelConfig& config);

inline constexpr int depth_classes = 6;
int depth(int block_k, int choice);

/// Aligns the row starts of A, B, C and D to so many bytes, and some of them to no more: by the pointer, or by the
/// leading dimension, which is `slack` elements longer than packed. Then normalises the problem.
void place_all(GemmCase& gemm, std::array<int, 4> align, bool by_pointer, std::int64_t slack);

/// Strides of a batch: none, three in a row with gaps, two that share an operand.
inline constexpr int batch_classes = 3;
void apply_batch(int choice, Problem& problem, Random& random);

/// `alpha` 0..2 are three alphas and betas, small integers of integers; `c` 0..2: none, read, and overwritten by D. The
/// scales are of 8-bit floating point alone.
void apply_epilogue(GemmCase& gemm, int alpha, int c, Bias bias, Activation activation, bool scaled);

std::vector<GemmCase> hopper_pairs(int shapes);

}  // namespace jitgemm::test
