#pragma once

#include <cstdint>
#include <string_view>

#include "jitgemm/export.hpp"

namespace jitgemm {

/// What travels between the ranks of a TensorParallel. `m`, `n` and `k` are those of the Problem that a rank is given;
/// `ranks` divides the m of the first two.
enum class Exchange : std::uint8_t {
  all_gather_a,      ///< a rank has m / ranks rows of A and its own n columns of B, and gets all m rows of these of D
  reduce_scatter_d,  ///< a rank has its own k columns of A and rows of B, and gets m / ranks rows of the sum over ranks
  all_reduce_d,      ///< the same, and gets all m rows
};
/// "unknown" for what is none.
JITGEMM_EXPORT std::string_view to_string(Exchange exchange);

/// How ranks compute a product together.
enum class ParallelMethod : std::uint8_t {
  unfused,     ///< NCCL's collective and each rank's product, one after the other
  overlapped,  ///< communication runs under the product
  one_shot,    ///< sums of D, behind the product, in one step by a kernel of the library's own
};
/// "unknown" for what is none.
JITGEMM_EXPORT std::string_view to_string(ParallelMethod method);

}  // namespace jitgemm
