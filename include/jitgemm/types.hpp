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

/// Element types. A and B share one of f16 or bf16; C, D and bias share one of f16, bf16 or f32.
enum class DataType : std::uint8_t { f16, bf16, f32 };
inline constexpr DataType f16 = DataType::f16;
inline constexpr DataType bf16 = DataType::bf16;
inline constexpr DataType f32 = DataType::f32;

/// row_major: the elements of one row are adjacent. column_major: the elements of one column are.
enum class Layout : std::uint8_t { row_major, column_major };

/// Applied last, in f32, to alpha * A * B + beta * C + bias. NaN stays NaN in all of them.
enum class Activation : std::uint8_t { none, relu, leaky_relu };

JITGEMM_EXPORT std::size_t size_of(DataType type);  ///< bytes of one element

JITGEMM_EXPORT std::string_view to_string(DataType type);
JITGEMM_EXPORT std::string_view to_string(Layout layout);
JITGEMM_EXPORT std::string_view to_string(Activation activation);

/// The inverses of to_string; nullopt for a text that names nothing.
JITGEMM_EXPORT std::optional<DataType> parse_data_type(std::string_view text);
JITGEMM_EXPORT std::optional<Layout> parse_layout(std::string_view text);
JITGEMM_EXPORT std::optional<Activation> parse_activation(std::string_view text);

}  // namespace jitgemm
