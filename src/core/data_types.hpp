#pragma once

#include <cstdint>
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

/// A binary floating-point format of at most 16 bits.
struct ShortFloat {
  int fraction_bits = 0, bias = 0;
  int largest = 0;         // bits of the largest finite value
  bool saturates = false;  // else infinity follows the largest finite value
  int not_a_number = 0;    // a quiet one; for all patterns above the largest finite and infinity
};

/// What an integer may be, in as many bits as its type has. A pattern beyond `largest` is a negative number.
struct IntegerRange {
  std::int64_t lowest = 0, largest = 0;
};

/// What there is to know of an element type.
struct DataTypeInfo {
  DataType type;
  std::string_view name;         // in texts
  std::string_view device_name;  // in the templates
  int bits;
  // What the bits mean. Without either they are a float or, of 64, a double.
  ShortFloat short_float = {};
  IntegerRange integers = {};
  // Of a matrix A or B of it.
  DataTypeSet partners = {};    // types of the other operand; none if nothing multiplies it
  DataType accumulator = f32;   // of sums and partial tiles
  DataTypeSet outputs = {};     // types of D
  DataType usual_output = f32;  // where none is given
  bool tensor_cores = true;
  // Of a matrix D of it.
  DataType addend = f32;  // of C and bias

  constexpr bool is_integer() const { return integers.largest != 0; }
  constexpr bool is_short_float() const { return short_float.fraction_bits != 0; }
};

/// All of them, in the order of DataType.
std::span<const DataTypeInfo> data_types();

/// The row of a type; for what is no element type, one of 0 bits that goes with none.
const DataTypeInfo& info_of(DataType type);

// "f16, bf16 or f32": those that A and B, or that D, may have.
std::string input_type_names();
std::string output_type_names();

}  // namespace jitgemm
