#include "core/data_types.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "util/alternatives.hpp"

namespace jitgemm {
namespace {

constexpr DataTypeSet of_16_bits{f16, bf16, f32}, of_fp8{f16, bf16, f32, e4m3, e5m2};

// s32 is a D alone.
constexpr std::array table{
    DataTypeInfo{.type = f16,
                 .name = "f16",
                 .device_name = "F16",
                 .bits = 16,
                 .short_float = {10, 15, 0x7bff, false, 0x7fff},
                 .partners = {f16},
                 .outputs = of_16_bits,
                 .usual_output = f16,
                 .addend = f16},
    DataTypeInfo{.type = bf16,
                 .name = "bf16",
                 .device_name = "BF16",
                 .bits = 16,
                 .short_float = {7, 127, 0x7f7f, false, 0x7fff},
                 .partners = {bf16},
                 .outputs = of_16_bits,
                 .usual_output = bf16,
                 .addend = bf16},
    DataTypeInfo{.type = f32,
                 .name = "f32",
                 .device_name = "float",
                 .bits = 32,
                 .partners = {f32},
                 .outputs = {f32},
                 .tensor_cores = false,
                 .addend = f32},
    DataTypeInfo{.type = tf32, .name = "tf32", .device_name = "TF32", .bits = 32, .partners = {tf32}, .outputs = {f32}},
    DataTypeInfo{.type = f64,
                 .name = "f64",
                 .device_name = "double",
                 .bits = 64,
                 .partners = {f64},
                 .accumulator = f64,
                 .outputs = {f64},
                 .usual_output = f64,
                 .addend = f64},
    DataTypeInfo{.type = e4m3,
                 .name = "e4m3",
                 .device_name = "E4M3",
                 .bits = 8,
                 .short_float = {3, 7, 0x7e, true, 0x7f},
                 .partners = {e4m3, e5m2},
                 .outputs = of_fp8,
                 .usual_output = bf16,
                 .addend = bf16},
    DataTypeInfo{.type = e5m2,
                 .name = "e5m2",
                 .device_name = "E5M2",
                 .bits = 8,
                 .short_float = {2, 15, 0x7b, true, 0x7f},
                 .partners = {e4m3, e5m2},
                 .outputs = of_fp8,
                 .usual_output = bf16,
                 .addend = bf16},
    DataTypeInfo{.type = s8,
                 .name = "s8",
                 .device_name = "signed char",
                 .bits = 8,
                 .integers = {-128, 127},
                 .partners = {s8},
                 .accumulator = s32,
                 .outputs = {s32, f16, bf16, f32},
                 .usual_output = s32},
    DataTypeInfo{.type = s32,
                 .name = "s32",
                 .device_name = "int",
                 .bits = 32,
                 .integers = {-(1ll << 31), (1ll << 31) - 1},
                 .addend = s32},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < table.size(); ++i)
    if (table[i].type != DataType(i)) return false;
  return true;
}
static_assert(in_order() && DataType(table.size()) == DataType::automatic);

constexpr DataTypeInfo none{.type = DataType::automatic, .name = "automatic", .device_name = "", .bits = 0};

template <typename Is>
std::string names_of(Is is) {
  std::vector<std::string_view> names;
  for (const DataTypeInfo& info : table)
    if (is(info)) names.push_back(info.name);
  return alternatives(names);
}

}  // namespace

std::span<const DataTypeInfo> data_types() { return table; }

const DataTypeInfo& info_of(DataType type) {
  return std::size_t(type) < table.size() ? table[std::size_t(type)] : none;
}

std::string input_type_names() {
  return names_of([](const DataTypeInfo& info) { return !info.partners.empty(); });
}

std::string output_type_names() {
  return names_of([](const DataTypeInfo& info) {
    return std::any_of(table.begin(), table.end(),
                       [&](const DataTypeInfo& a) { return a.outputs.contains(info.type); });
  });
}

}  // namespace jitgemm
