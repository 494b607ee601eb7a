#pragma once

#include <cstdint>

#include "jitgemm/types.hpp"

namespace jitgemm {

/// Element `index` of an array in host memory. A tf32 is the f32 that holds it; a double holds every value exactly.
double load_element(const void* memory, std::int64_t index, DataType type);

/// Rounds to nearest, ties to even. Too large: infinity, in e4m3 and e5m2 the largest finite value, of integers
/// the nearest end of their range.
void store_element(double value, void* memory, std::int64_t index, DataType type);

/// 2 to the minus number of bits of a significand: the largest relative error of rounding. 0 for integers.
double unit_roundoff(DataType type);
/// Above it store_element() gives infinity or saturates.
double largest_finite(DataType type);
/// The largest absolute error of rounding to what is subnormal.
double half_smallest_subnormal(DataType type);

/// Of what fill_random() draws: rounded to integers, numbers of deviation 1 would be nearly all -1, 0 or 1.
double random_deviation(DataType type);

}  // namespace jitgemm
