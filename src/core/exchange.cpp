#include "jitgemm/exchange.hpp"

#include <array>

#include "core/enumerators.hpp"

namespace jitgemm {

template <>
std::span<const Enumerator<Exchange>> enumerators() {
  static constexpr std::array all{Enumerator<Exchange>{Exchange::all_gather_a, "all_gather_a"},
                                  Enumerator<Exchange>{Exchange::reduce_scatter_d, "reduce_scatter_d"},
                                  Enumerator<Exchange>{Exchange::all_reduce_d, "all_reduce_d"}};
  return all;
}

template <>
std::span<const Enumerator<ParallelMethod>> enumerators() {
  static constexpr std::array all{Enumerator<ParallelMethod>{ParallelMethod::unfused, "unfused"},
                                  Enumerator<ParallelMethod>{ParallelMethod::overlapped, "overlapped"},
                                  Enumerator<ParallelMethod>{ParallelMethod::one_shot, "one_shot"}};
  return all;
}

std::string_view to_string(Exchange exchange) { return name_of(exchange); }
std::string_view to_string(ParallelMethod method) { return name_of(method); }

}  // namespace jitgemm
