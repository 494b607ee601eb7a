#include "jitgemm/types.hpp"

#include <array>
#include <vector>

#include "core/activations.hpp"
#include "core/data_types.hpp"
#include "core/enumerators.hpp"

namespace jitgemm {

template <>
std::span<const Enumerator<DataType>> enumerators() {
  static const auto all = [] {
    std::array<Enumerator<DataType>, std::size_t(DataType::automatic)> names{};
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = {data_types()[i].type, data_types()[i].name};
    return names;
  }();
  return all;
}

template <>
std::span<const Enumerator<Layout>> enumerators() {
  static constexpr std::array all{Enumerator<Layout>{Layout::row_major, "row_major"},
                                  Enumerator<Layout>{Layout::column_major, "column_major"}};
  return all;
}

template <>
std::span<const Enumerator<Bias>> enumerators() {
  static constexpr std::array all{Enumerator<Bias>{Bias::none, "none"}, Enumerator<Bias>{Bias::along_n, "along_n"},
                                  Enumerator<Bias>{Bias::along_m, "along_m"}};
  return all;
}

template <>
std::span<const Enumerator<Activation>> enumerators() {
  static const auto all = [] {
    std::vector<Enumerator<Activation>> names;
    for (const ActivationInfo& info : activations()) names.push_back({info.activation, info.name});
    return names;
  }();
  return all;
}

template <>
std::span<const Enumerator<Scaling>> enumerators() {
  static constexpr std::array all{Enumerator<Scaling>{Scaling::value, "value"},
                                  Enumerator<Scaling>{Scaling::vector, "vector"},
                                  Enumerator<Scaling>{Scaling::block_1x128, "block_1x128"},
                                  Enumerator<Scaling>{Scaling::block_128x128, "block_128x128"}};
  return all;
}

template <>
std::span<const Enumerator<Grouping>> enumerators() {
  static constexpr std::array all{
      Enumerator<Grouping>{Grouping::none, "none"}, Enumerator<Grouping>{Grouping::offsets, "offsets"},
      Enumerator<Grouping>{Grouping::counts, "counts"}, Enumerator<Grouping>{Grouping::along_k, "along_k"}};
  return all;
}

template <>
std::span<const Enumerator<BatchMode>> enumerators() {
  static constexpr std::array all{Enumerator<BatchMode>{BatchMode::strided, "strided"},
                                  Enumerator<BatchMode>{BatchMode::pointers, "pointers"}};
  return all;
}

template <>
std::span<const Enumerator<Accumulation>> enumerators() {
  static constexpr std::array all{Enumerator<Accumulation>{Accumulation::fast, "fast"},
                                  Enumerator<Accumulation>{Accumulation::promoted, "promoted"}};
  return all;
}

int bits_of(DataType type) { return info_of(type).bits; }
std::size_t size_of(DataType type) { return std::size_t(bits_of(type) / 8); }

std::string_view to_string(DataType type) { return type == DataType::automatic ? "automatic" : name_of(type); }
std::string_view to_string(Layout layout) { return name_of(layout); }
std::string_view to_string(Bias bias) { return name_of(bias); }
std::string_view to_string(Activation activation) { return name_of(activation); }
std::string_view to_string(Scaling scaling) { return name_of(scaling); }
std::string_view to_string(Grouping grouping) { return name_of(grouping); }
std::string_view to_string(BatchMode batch_mode) { return name_of(batch_mode); }
std::string_view to_string(Accumulation accumulation) { return name_of(accumulation); }

std::optional<DataType> parse_data_type(std::string_view text) { return parse_enumerator<DataType>(text); }
std::optional<Layout> parse_layout(std::string_view text) { return parse_enumerator<Layout>(text); }
std::optional<Bias> parse_bias(std::string_view text) { return parse_enumerator<Bias>(text); }
std::optional<Activation> parse_activation(std::string_view text) { return parse_enumerator<Activation>(text); }
std::optional<Scaling> parse_scaling(std::string_view text) { return parse_enumerator<Scaling>(text); }
std::optional<Grouping> parse_grouping(std::string_view text) { return parse_enumerator<Grouping>(text); }
std::optional<BatchMode> parse_batch_mode(std::string_view text) { return parse_enumerator<BatchMode>(text); }
std::optional<Accumulation> parse_accumulation(std::string_view text) { return parse_enumerator<Accumulation>(text); }

}  // namespace jitgemm
