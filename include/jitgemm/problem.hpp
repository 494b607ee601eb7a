#pragma once

#include <string>
#include <string_view>

#include "jitgemm/export.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm {

/// A batch stride that follows from the matrix: one after the other without a gap.
inline constexpr std::int64_t packed_stride = -1;

/// A matrix as its elements lie in memory.
struct Matrix {
  DataType type = f16;
  Layout layout = Layout::row_major;
  /// Leading dimension in elements: from one row to the next (row-major) or one column to the next; 0 means packed.
  /// Times the rows (columns), at least one, it comes to 2^50 bytes at most.
  std::int64_t ld = 0;
  /// Elements from one matrix of a batch to the next; times the batch, and one matrix more, they come to 2^62 bytes at
  /// most. 0 uses one A, B or C for all; where groups are parts of one matrix it has no other. Matrices of D may
  /// neither overlap nor interleave, unless a row of each fits into ld, side by side.
  std::int64_t stride = packed_stride;
  /// What plan(), warm() and source() may assume of the pointer, in bytes: a power of two, the element's size at least
  /// and 16 at most. gemm() looks at the pointers it is given instead, but at none that BatchMode::pointers has.
  int alignment = 16;
  /// What an A's or B's scales are, if it has any, or Scaling::block_1x128 for a D that gets scales of its own.
  /// Scales of vectors and blocks are tuned as they are; D's own share what was measured without them.
  Scaling scaling = Scaling::value;
  /// Of a B of groups of rows: BatchMode::pointers where each group's lies somewhere else, as layers' weights do that
  /// were allocated one by one. Operands::b names where then, and `stride` means nothing.
  BatchMode batch_mode = BatchMode::strided;
};

/// What becomes of x = alpha * A * B + beta * C before it is stored.
struct Epilogue {
  Bias bias = Bias::none;  ///< of C's type, the same for all matrices of a batch
  Activation activation = Activation::none;
  double slope = 0.01;  ///< of leaky_relu; not NaN
  /// The digest of an EpilogueFunction that this process has defined (define_epilogue() of jitgemm/epilogue.hpp); 0:
  /// none. It stands for all of the above: C, bias and activation are its own operands and text, and it is given
  /// alpha * A * B. With one of pairs of columns D is M x N / 2.
  std::uint64_t function = 0;
};

/// What is computed, for each of `batch` matrices:  D = activation(alpha * A * B + beta * C + bias)
///
/// A is M x K, B is K x N, C and D are M x N and row-major. For a column-major D compute its transpose: swap A and B, M
/// and N, and the bias's direction. The types that exist, and where an sm_80 GPU is not enough:
///
///     A, B                      accumulator  D                        C, bias       alpha, beta  activation
///     f16, f16  or  bf16, bf16  f32          f16, bf16, f32           D's           f32          all
///     e4m3 or e5m2, each        f32          f16, bf16, f32           D's           f32          all   (sm_89)
///                                            e4m3, e5m2               bf16          f32          all   (sm_89)
///     tf32, tf32                f32          f32                      f32           f32          all
///     f32, f32                  f32          f32                      f32           f32          all
///     f64, f64                  f64          f64                      f64           f64          all
///     8-bit integers, alike     s32          s32                      s32           integers*    none, relu
///                                            f16, bf16, f32           D's           f32          all
///
/// A and B of e4m3, e5m2 and, where D is floating-point, of integers may have scales (Operands), one each or vectors
/// (Matrix::scaling): what is meant above by alpha * A * B is alpha * diag(scale_a) * A * B * diag(scale_b). Those of
/// e4m3 and e5m2 may have scales of blocks, too. All are those of B's N columns as they lie, with pairs of columns,
/// too.
///
/// Every kernel rounds alike: x = fma(alpha, sum, fma(beta, C, bias)) in the type of alpha and beta, to which an s32
/// sum is rounded first, each fma rounded once, to nearest even. Terms that are not there are left out: x = alpha *
/// sum, fma(alpha, sum, bias) or fma(alpha, sum, beta * C). Where a side has a vector of scales, alpha * sum is (sum *
/// (alpha * scale_a)) * scale_b instead, each product rounded once, the last with what is added: x = fma(sum * (alpha *
/// scale_a), scale_b, fma(beta, C, bias)); a single value on the other side stands in each place of a vector. Scales
/// of blocks of k, which both sides have then, multiply the sum of each k-block instead: sum = fma(scale_a * scale_b,
/// sum of the k-block, sum), the product of the scales rounded. Then come the activation and the rounding to D's type.
/// Only sum depends on the kernel: given the same sums, activations that are exact (see Activation) have the same bits
/// on every GPU and on the emulator, and the others differ by 2^-21 |x| at most (f64: 2^-50 |x|) before they are
/// rounded to D's type.
///
/// A D of e4m3 may get scales of its own (d.scaling = Scaling::block_1x128), one for each row and 128 columns, as a
/// following product reads those of an A: Operands::scales_d takes them, and D the values divided by them. Of the
/// largest |value| of such a block, NaN left out, scale = largest / 448, at least 2^-126 and at most FLT_MAX / 448; D
/// is value * (1 / scale), each operation rounded. So where all values are 0 the scale is 2^-126, infinity becomes 448
/// of the largest scale, and NaN stays NaN without a say in its block's scale. By the sm90 main loop, without a batch,
/// scale_d and Epilogue::function, where N and ldd are multiples of 16, D is aligned to 16 bytes, and neither k nor
/// alpha is 0.
///
/// With a Grouping the matrices are groups of rows, as mixture-of-experts layers have them: a B for each, and as many
/// rows of A and D as the device finds in Operands::group_rows when the call runs there, 0 too. M is what the host
/// knows: the rows of all groups at most (offsets), or of each (counts). Rows of D that are no group's stay as they
/// are, and a group's come out as those of a GEMM of it alone, with the same configuration bit for bit. A is row-major;
/// vectors of scales are each group's own: M of A, of each group with counts, and batch x N of B. Scales of blocks are
/// 1x128 of A, and lie as those of a matrix of its M rows, with counts of each group. C and bias are as without groups,
/// where offsets have one C for all; epilogue functions get the row of A, and the group as `batch`.
///
/// With Grouping::along_k the groups are of k, as weights' gradients have them: one A and B, of any layouts, and a C
/// and D for each group, the product of A's columns and B's rows that are its own. K is what the host knows, as M
/// above: of all groups at most. What is no group's is not read, whatever lies there; a group without any gets the
/// product zero. Scales are single values or vectors, the same for all groups, and Epilogue::function takes no pairs of
/// columns.
///
/// *Of less than 2^31. s32 sums wrap. A D of e4m3 or e5m2 saturates: what is larger than the largest finite value,
/// infinity too, becomes that.
struct Problem {
  /// Each >= 0 and < 2^31, D of all matrices of less than 2^30 tiles. With k = 0 the product is zero, and
  /// A, B and their scales are not read.
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;  ///< matrices or groups, >= 0 and < 2^31; bias and scalars are the same for all
  Matrix a = {}, b = {};
  Matrix c = {.type = DataType::automatic};  ///< of the type that goes with D's: the table's, or automatic
  Matrix d = {};
  // Scalars are rounded to f32 unless the table says otherwise. NaN and infinity are allowed and propagate: a beta of
  // NaN is not 0, so it reads C.
  double alpha = 1;  ///< alpha = 0, of either sign, never reads A, B and their scales, and counts as +0
  double beta = 0;   ///< beta = 0, of either sign, never reads C
  Epilogue epilogue = {};
  /// Of e4m3 and e5m2 products by the sm90 main loop. The sm80 one always adds in f32, so it is what promoted asks for,
  /// too. With scales of blocks it is promoted, whatever is said here.
  Accumulation accumulation = Accumulation::fast;
  Grouping grouping = Grouping::none;
  /// Of a Grouping, else 0: the rows, or elements of k, that a group is expected to have; 0: as many as if all have the
  /// same. Rounded up to a power of two or one and a half of one, it decides what is chosen, not M, so that one kernel
  /// serves many; any rows are computed right.
  std::int64_t expected_m = 0;
};

/// One operand of an Epilogue::function in one call.
struct EpilogueValue {
  const void* in = nullptr;  ///< of what is read: as long as the operand's shape says, aligned to its element
  void* out = nullptr;       ///< of what is written, which overlaps nothing else that the call reads or writes
  double scalar = 0;         ///< rounded to the accumulator's type; of integers whole, and below 2^31
  std::int64_t ld = 0;       ///< of a matrix: elements from one row to the next; 0: packed
  /// Elements from one matrix or vector of a batch to the next. packed_stride: matrices one after the other; one vector
  /// for all. A matrix that is written may not overlap or interleave with the next. With Grouping::offsets, whose
  /// groups are rows of one matrix, only vectors along_n have one: leave it away for the others.
  std::int64_t stride = packed_stride;
};

/// The memory of one call, owned by the caller and alive until the stream has passed the call: host memory on the
/// emulator; on a CUDA device its own, managed or page-locked memory, or another device's that it can reach (peer
/// access, an allocator's pool or a mapping that lets it read and write). D may be C, or a matrix that the epilogue
/// reads, exactly (same pointer, type, leading dimension and stride); any other overlap of D with an input is an error,
/// judged by the addresses from first to last element. Slices of one array may lie beside each other: rows of the same
/// distance in bytes, and of a batch strides that are multiples of it, are told apart.
struct Operands {
  const void* a = nullptr;
  /// With BatchMode::pointers not B but an array of pointers to it, one for each group, in memory as the matrices',
  /// aligned to 8 bytes and read while the call runs on the device. Each is a multiple of b.alignment bytes and names
  /// memory as the matrices'; two may be the same. Where a group has rows, and its pointer is null or aligned to less
  /// than b.alignment and the rows of B have in common, its product is zero and Context::check() says so. Where k
  /// or alpha is 0 nothing looks at them. That what they name overlaps no D nor workspace is not checked.
  const void* b = nullptr;
  const void* c = nullptr;  ///< ignored when beta = 0
  void* d = nullptr;
  const void* bias = nullptr;  ///< ignored without Epilogue::bias
  /// f32, of the same memory as the matrices, for operands that may have scales, see Problem. A and B stand for scale_a
  /// * A and scale_b * B: one value each, of which nullptr is 1, or with Scaling::vector M values, scale_a[m] of row m
  /// of A, and N values, scale_b[n] of column n of B, the same for all matrices of a batch. Of two single values alpha,
  /// rounded to f32, * scale_a * scale_b is multiplied in f64 and then rounded to f32, so that the order of these three
  /// does not matter; Problem says how others are multiplied, and Scaling how they lie. Those of blocks are each
  /// matrix's, or group's with counts, one after the other; where its operand's stride is 0 all have those of one.
  /// scale_d is one value: it multiplies what the activation gives before it becomes an e4m3 or e5m2 D.
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  const float* scale_d = nullptr;
  /// Of a D with scales of its own, which are written: as A's of M rows and K = N with Scaling::block_1x128,
  /// from a multiple of 16 bytes on.
  float* scales_d = nullptr;
  /// Of a Grouping, else nullptr: one for each of `batch` groups, in memory as the matrices', read while the call runs
  /// on the device: offsets, the row at which each group ends and the next one begins, never less than the one before
  /// and M at most, or along k the same of k and K; or counts, of each group's rows, M at most. Whatever they are,
  /// nothing outside of the operands is read or written: an end before the largest one so far is that, others are taken
  /// as the nearest in range. Context::check() says so.
  const std::int32_t* group_rows = nullptr;
  /// Of Epilogue::function: what each of its operands is in this call, in their order, and how many they are.
  const EpilogueValue* epilogue = nullptr;
  std::size_t epilogue_count = 0;
  /// Scratch for split tiles and packed operands, 256-byte aligned, any contents, not shared by calls that may run at
  /// once; threads of one Context may share it on one stream. What would be chosen without it, but needs more than
  /// workspace_bytes, is left for the best that the cost model finds to fit; a configuration that the caller pins is
  /// refused then. Counters of split tiles, and of groups' tiles, 4 bytes each, are the Context's own all the same.
  /// nullptr: the Context keeps one per stream.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

/// One line, `m=.. n=.. k=.. a=.. b=.. d=.. ...`. Left out are fields at their default, those that say the same (c of
/// the type that goes with d, a packed ld or stride) and those without effect (strides of one matrix, stride_c without
/// beta, the slope of another activation). Scalars are as the accumulator's type rounds them. So what reads it back
/// gets the same work, not always the same fields.
JITGEMM_EXPORT std::string to_string(const Problem& problem);

/// The inverse of to_string, which also takes 64x64x64 for m=64 n=64 k=64. Fields that are not there have their
/// default, but b is a's type, and d what default_output() says, where a or b is given. Throws Error{invalid_problem}.
JITGEMM_EXPORT Problem parse_problem(std::string_view text);
/// Sets what to_string calls `name`; "automatic" is a type of c. Throws Error{invalid_problem} for a field or a value
/// that there is not.
JITGEMM_EXPORT void set_field(Problem& problem, std::string_view name, std::string_view value);

/// The type of D that is usual for an A of this type: bf16 for e4m3 and e5m2, else A's or, of tf32 and
/// integers, the accumulator's.
JITGEMM_EXPORT DataType default_output(DataType a);

}  // namespace jitgemm
