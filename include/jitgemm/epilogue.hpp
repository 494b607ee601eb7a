#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jitgemm/export.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm {

/// Where an epilogue's operand has its values, of D with M rows and N columns, N / 2 where the epilogue takes pairs.
enum class OperandShape : std::uint8_t {
  scalar,   ///< one, given with the call
  along_m,  ///< M in device memory, one a row of D
  along_n,  ///< N in device memory, one a column of D
  matrix,   ///< M x N in device memory, row-major
};

/// Which columns of the product meet in one of D, if two do: of a gate and of what it lets through.
enum class Pairing : std::uint8_t {
  none,        ///< D is M x N
  halves,      ///< column j and N / 2 + j, as weights have them that are stacked [gate; up]; D is M x N / 2
  neighbours,  ///< columns 2j and 2j + 1; D is M x N / 2
};

struct EpilogueOperand {
  std::string name;  ///< of a member of Args, or of Out: lower-case letters, digits and _, a letter first
  OperandShape shape = OperandShape::matrix;
  /// In memory. With an f32 accumulator f16, bf16 or f32; else the accumulator's. The function sees the accumulator's
  /// type. A scalar's says nothing.
  DataType type = f16;
  bool output = false;  ///< of Out, which only a matrix can be
};

/// A function of one's own from a sum to an element of D, as CUDA C++ that is compiled into the kernel:
///
///     __device__ float epilogue(float x, const Args& args, Out& out) { return x + args.residual; }
///
/// It is called for each element of D, after all of k is added up, with x = alpha * sum (times scale_a and scale_b), in
/// the accumulator's type: float, double or int; and where a tile reaches beyond D, for what is not there, with
/// operands of which each by itself is 0 or that of some element, and nobody sees what comes of it: but a loop has to
/// end for any such operands, too, or the kernel hangs, and a whole number that is divided by one, whatever another one
/// says, ends the process on the emulator, as does a function that calls itself without an end. What it returns is
/// multiplied by scale_d where there is one, and rounded to D's type. Args has the inputs by name and, as int, `row`,
/// `column` and `batch`; Out has the outputs, zero before the call. It gets values and no address, so that nothing can
/// be read or written out of bounds; loads, stores and edges are the library's.
///
/// Of a gated product it takes the two sums of a pair, column j of the gate's and of the other one's, and gives column
/// j of a D that is N / 2 wide, as all its operands are:
///
///     __device__ float epilogue(float gate, float up, const Args& args, Out& out) { return fmaxf(gate, 0) * up; }
///
/// N is even then. B and its scales stay where they are: stacked halves, or columns in turn. Scales of blocks are of
/// 128 columns as these lie, wherever the second half begins among them.
///
/// It has to be a pure function of what it is given: how often it is called, by what and in which order follows from
/// the kernel. Products and sums round one by one, as --fmad=false has it; fmaf() is one rounding. It may call
///
/// - fabs, sqrt, rsqrt, cbrt, exp, exp2, expm1, log, log2, log1p, tanh, atan, erf, floor, ceil, rint, trunc, round,
/// fmax,
///   fmin, fmod, copysign and fma, each with an f behind it for float, powf, min, max, abs, isnan and isinf, of which
///   CUDA's and the emulator's differ by a few units in the last place;
/// - gelu_erf, gelu_tanh and silu, the built-in activations, dgelu_erf, dgelu_tanh and dsilu, their gradients, of float
///   within 2^-20, and sigmoid(x), which is 1 / (1 + 2^x) within 2^-21 of itself; functions of the text's own by these
///   names hide them,
///
/// and has the constants log2_e, INFINITY, NAN and FLT_MAX, and the types int32_t, uint32_t, int64_t and uint64_t.
///
/// At namespace scope there may be __device__ functions, constexpr values, struct, enum, using and template. Refused,
/// with the line: preprocessor directives, strings, asm, variables of static storage, names with two underscores, names
/// of the library's, and, when a GPU's kernel is compiled, what is not arithmetic once it is optimised: memory (a table
/// with an index that is known only then, too), synchronisation, recursion, what depends on the thread or the time.
///
/// It is code, trusted as its caller is: on the emulator it runs in this process.
struct EpilogueFunction {
  std::vector<EpilogueOperand> operands;  ///< 8 at most
  std::string code;                       ///< 64 KiB at most; without a line that describes operands or pairs
  Pairing pairs = Pairing::none;          ///< else the function takes two sums
};

/// A line for pairs if there are any, one for each operand, then the code: what parse_epilogue() reads. Errors give
/// lines of this text.
///
///     // pairs halves
///     // operand in residual matrix bf16
///     // operand in limit scalar
///     // operand out before matrix f16
JITGEMM_EXPORT std::string to_string(const EpilogueFunction& function);
/// Throws Error{invalid_problem} with the line that it does not understand.
JITGEMM_EXPORT EpilogueFunction parse_epilogue(std::string_view text);

/// Makes the function known to this process, for good, and gives the digest that Epilogue::function names it by: the
/// same for the same operands and code in every process. Compiles nothing. Throws Error{invalid_problem}. Thread-safe.
JITGEMM_EXPORT std::uint64_t define_epilogue(const EpilogueFunction& function);
/// What the digest stands for. Throws Error{invalid_problem} for one that this process has not defined.
JITGEMM_EXPORT EpilogueFunction epilogue_of(std::uint64_t digest);

}  // namespace jitgemm
