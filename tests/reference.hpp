#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm::test {

/// Element i of an array, exactly.
double load(const void* array, std::int64_t i, DataType type);
/// Rounds to nearest even; overflow becomes infinity.
void store(double value, void* array, std::int64_t i, DataType type);

/// The numerics contract. With s = sum a b and R = max |sum a b over a contiguous range of k| <= sum |a b|,
///
///   |d - ref| <= u_D |ref| + L (|alpha| g R + 4 u_acc (|alpha s| + |beta c| + |bias|))
///
/// where u_D and u_acc = 2^-24 are unit roundoffs, L = max(1, |slope|) is the activation's Lipschitz constant, half the
/// smallest subnormal is added, and a result may be infinite if that much more than it rounds to infinity. NaN and
/// infinity from the inputs come out exactly; where a partial result leaves the range of f32, anything may.
///
/// g: a tensor core adds L products to the accumulator at once, aligned to the largest of them, F fraction bits kept
/// and the rest cut off: (L + 1) 2^-F + 2^-23 of R at most. L = 8, F = 24 on sm_80 is 1.375 x 2^-24 a product, L = 16,
/// F = 25 on sm_90 0.66 x 2^-24; adding the partial sums of a cut tile is 2^-24 for each 32 products at most.
double g(MainLoop main_loop, std::int64_t k);
double unit_roundoff(DataType type);

/// D as float64 has it from the exact inputs, row by row, and how far off a result may be.
struct Reference {
  std::vector<double> d, bound;
};
/// `operands` are on the host, the problem normalised.
Reference reference(const Problem& problem, const Operands& operands, MainLoop main_loop);

/// One element alone, for large problems.
struct ReferenceElement {
  double d, bound;
};
ReferenceElement reference_element(const Problem& problem, const Operands& operands, MainLoop main_loop,
                                   std::int64_t row, std::int64_t column);

bool within(double value, const ReferenceElement& expected, DataType type);

/// Empty, or the first element of D outside of the contract and how many are.
std::string violation(const Reference& expected, const Problem& problem, const void* d);

}  // namespace jitgemm::test
