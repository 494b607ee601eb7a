#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "jitgemm/types.hpp"

namespace jitgemm {

/// A set of data types.
class DataTypeSet {
 public:
  constexpr DataTypeSet() = default;
  constexpr DataTypeSet(std::initializer_list<DataType> types) {
    for (DataType type : types) bits_ |= 1u << unsigned(type);
  }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool contains(DataType type) const { return unsigned(type) < 32 && (bits_ >> unsigned(type) & 1) != 0; }

 private:
  unsigned bits_ = 0;
};

/// What there is to know of an element type.
struct DataTypeInfo {
  DataType type;
  std::string_view name;         // in texts
  std::string_view device_name;  // in the templates
  int bits;
  bool fp8 = false;
  // Of a matrix A or B of it.
  DataTypeSet partners = {};    // types of the other operand; none if nothing multiplies it
  DataType accumulator = f32;   // of sums, partial tiles, alpha and beta
  DataTypeSet outputs = {};     // types of D
  DataType usual_output = f32;  // where none is given
  bool tensor_cores = true;
  // Of a matrix D of it.
  DataType addend = f32;  // of C and bias
};

/// All of them, in the order of DataType.
std::span<const DataTypeInfo> data_types();

/// The row of a type; for what is no element type, one of 0 bits that goes with none.
const DataTypeInfo& info_of(DataType type);

// "f16, bf16 or f32": those that A and B, or that D, may have.
std::string input_type_names();
std::string output_type_names();

}  // namespace jitgemm
