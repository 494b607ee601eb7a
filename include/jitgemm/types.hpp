#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "jitgemm/export.hpp"

/// The driver's stream handle. A cudaStream_t and a CUstream are both this pointer.
struct CUstream_st;

namespace jitgemm {

using Stream = CUstream_st*;  ///< nullptr is the default stream

/// Element types. Problem says which go together.
enum class DataType : std::uint8_t {
  f16,
  bf16,
  f32,   ///< as an input: multiplied in full precision, without tensor cores
  tf32,  ///< f32 in memory, of which tensor cores read the sign, the exponent and the upper 10 bits of the fraction
  f64,
  e4m3,  ///< 8 bits, finite and NaN, largest 448
  e5m2,  ///< 8 bits, as f16 with a short fraction, largest finite 57344
  s8,
  s32,
  automatic,  ///< no type, but of C the one that goes with D's: see Problem
};
inline constexpr DataType f16 = DataType::f16;
inline constexpr DataType bf16 = DataType::bf16;
inline constexpr DataType f32 = DataType::f32;
inline constexpr DataType tf32 = DataType::tf32;
inline constexpr DataType f64 = DataType::f64;
inline constexpr DataType e4m3 = DataType::e4m3;
inline constexpr DataType e5m2 = DataType::e5m2;
inline constexpr DataType s8 = DataType::s8;
inline constexpr DataType s32 = DataType::s32;

/// row_major: the elements of one row are adjacent. column_major: the elements of one column are.
enum class Layout : std::uint8_t { row_major, column_major };

/// A vector that is added to the product.
enum class Bias : std::uint8_t {
  none,
  along_n,  ///< N elements, one a column of D
  along_m,  ///< M elements, one a row of D
};

/// Applied last, in the accumulator's type, to x = alpha * A * B + beta * C + bias. NaN stays NaN in all of them. Of
/// -infinity gelu_tanh and silu make NaN, as their formulas do, and gelu_erf, too, of f64; of f32 what is
/// next to the limit, between -2^-100 and 0. Exact are those that round once at most.
enum class Activation : std::uint8_t {
  none,        ///< x; exact
  relu,        ///< x < 0 ? 0 : x; exact
  leaky_relu,  ///< x < 0 ? slope * x : x; exact
  gelu_erf,    ///< x / 2 * (1 + erf(x / sqrt(2)))
  gelu_tanh,   ///< x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  silu,        ///< x / (1 + exp(-x))
};

/// Which scales an A or B has, f32 in device memory (Operands::scale_a and scale_b).
enum class Scaling : std::uint8_t {
  value,   ///< one for all of it
  vector,  ///< M of an A, one a row; N of a B, one a column
  /// One for each row (column) and 128 of k, K's last block may be shorter: ceil(K / 128) times M of an A, N of a B,
  /// each time as many as fill the last 16 bytes, from a multiple of 16 bytes on. cuBLASLt's VEC128_32F; DeepGEMM's
  /// 1 x 128, "MN-major, TMA-aligned".
  block_1x128,
  /// One for each 128 rows (columns) and 128 of k, the last may be less: ceil(M / 128) of an A, ceil(N / 128) of a B,
  /// times ceil(K / 128), which lie side by side. DeepGEMM's 128 x 128; cuBLASLt's BLK128x128_32F if those are a
  /// multiple of 4.
  block_128x128,
};

/// Whether a problem's `batch` matrices are groups: memory on the device says how many rows each has, or how much of k
/// (Operands::group_rows), and the host need not know.
enum class Grouping : std::uint8_t {
  none,     ///< M rows each
  offsets,  ///< the rows of all groups lie in one A, C and D of M rows, one group after the other; where each ends
  counts,   ///< an A, C and D of M rows for each group, of which the first are the group's; how many those are
  along_k,  ///< one A and B, of which each group has some of k, and a D, one after the other; where each ends in k
};

/// Where the matrices of a batch lie.
enum class BatchMode : std::uint8_t {
  strided,   ///< Matrix::stride elements apart
  pointers,  ///< wherever pointers in memory on the device say, one for each; of the B of groups of rows
};

/// Where e4m3 and e5m2 products are added up. The tensor cores of sm_90 add 32 of them to an f32 accumulator at once,
/// aligned to the largest, and keep 13 bits after its leading one: 33 x 2^-13 of the largest partial sum is lost at
/// most, every 32 products.
enum class Accumulation : std::uint8_t {
  fast,  ///< in the tensor cores: 33 x 2^-13 x K / 32 of the largest partial sum at most, of which signs cancel most
  /// The tensor cores add up 128 products, ordinary f32 additions those sums: 4 x 33 x 2^-13 of the sums of 128,
  /// whatever K, and 2^-24 of a partial sum for each 128 of K.
  promoted,
};

JITGEMM_EXPORT int bits_of(DataType type);          ///< of one element; 0 for what is no element type
JITGEMM_EXPORT std::size_t size_of(DataType type);  ///< bytes of one element; 0 for what is no element type

JITGEMM_EXPORT std::string_view to_string(DataType type);
JITGEMM_EXPORT std::string_view to_string(Layout layout);
JITGEMM_EXPORT std::string_view to_string(Bias bias);
JITGEMM_EXPORT std::string_view to_string(Activation activation);
JITGEMM_EXPORT std::string_view to_string(Scaling scaling);
JITGEMM_EXPORT std::string_view to_string(Grouping grouping);
JITGEMM_EXPORT std::string_view to_string(BatchMode batch_mode);
JITGEMM_EXPORT std::string_view to_string(Accumulation accumulation);

/// The inverses of to_string; nullopt for a text that names nothing.
JITGEMM_EXPORT std::optional<DataType> parse_data_type(std::string_view text);
JITGEMM_EXPORT std::optional<Layout> parse_layout(std::string_view text);
JITGEMM_EXPORT std::optional<Bias> parse_bias(std::string_view text);
JITGEMM_EXPORT std::optional<Activation> parse_activation(std::string_view text);
JITGEMM_EXPORT std::optional<Scaling> parse_scaling(std::string_view text);
JITGEMM_EXPORT std::optional<Grouping> parse_grouping(std::string_view text);
JITGEMM_EXPORT std::optional<BatchMode> parse_batch_mode(std::string_view text);
JITGEMM_EXPORT std::optional<Accumulation> parse_accumulation(std::string_view text);

}  // namespace jitgemm
