#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jitgemm/kernel_config.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm::test {

/// Element i of an array, exactly.
double load(const void* array, std::int64_t i, DataType type);
/// Rounds to nearest even; overflow becomes infinity, or in e4m3, e5m2 and integers the nearest finite value.
void store(double value, void* array, std::int64_t i, DataType type);

/// The numerics contract. With s = sum a b and R = max |sum a b over a contiguous range of k| <= sum |a b|,
///
///   |d - ref| <= u_D |ref| + L (|alpha| g R + 4 u_acc (|alpha s| + |beta c| + |bias|)) + h u_acc max(|x|, |ref|)
///
/// where u_D and u_acc (2^-24, in double precision 2^-53) are unit roundoffs, L is the activation's Lipschitz constant,
/// h the error of computing it (16 where it is approximated, else its roundings) at x; half the smallest subnormal is
/// added, and a result may be infinite if that much more than it rounds to infinity. NaN and infinity from the inputs
/// come out exactly; where a partial result leaves the range of the accumulator, anything may. Integers are exact.
/// alpha includes scale_a and scale_b, of vectors those of the element; all of it is multiplied by scale_d before it is
/// rounded.
///
/// g, a product: a tensor core adds L products to the accumulator at once, aligned to the largest of them, F fraction
/// bits kept and the rest cut off: (L + 1) 2^-F + 2^-23 of R at most. L = 8, F = 24 on sm_80 is 1.375 x 2^-24, L = 16,
/// F = 25 on sm_90 0.66 x 2^-24, tf32 has half of L; adding the partial sums of a split tile is 2^-24 for each 32
/// products at most. Without tensor cores, and in double precision, each product rounds once. sm_90's wgmma keeps 13
/// bits of 8-bit products: 33 x 2^-13 for each 32 at worst, of which signs cancel all but a quarter. Promoted, that is
/// so within a k-block of 128: the sums of those are parts of R without a common sign, or add up to no more than R with
/// one, so that what they lose comes to one k-block's worth; f32 adds them up.
double g(MainLoop main_loop, const Problem& problem);
double unit_roundoff(DataType type);

/// How the single scales of a call multiply; vectors are the operands'.
struct Scales {
  double product = 1, d = 1;
};

/// D as float64 has it (f64: long double) from the exact inputs, matrix by matrix and row by row, and how far off a
/// result may be.
struct Reference {
  std::vector<double> d, bound;
};
/// `operands` are on the host, the problem normalised.
Reference reference(const Problem& problem, const Operands& operands, MainLoop main_loop, const Scales& scales = {});

/// One element alone, for large problems.
struct ReferenceElement {
  double d, bound;
};
ReferenceElement reference_element(const Problem& problem, const Operands& operands, MainLoop main_loop,
                                   std::int64_t batch, std::int64_t row, std::int64_t column,
                                   const Scales& scales = {});

bool within(double value, const ReferenceElement& expected, DataType type);

/// Empty, or the first element of D outside of the contract and how many are.
std::string violation(const Reference& expected, const Problem& problem, const void* d);

}  // namespace jitgemm::test
