#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/kernel_list.hpp"
#include "jitgemm/context.hpp"

namespace jitgemm::cli {

/// Which candidates of a problem a benchmark times besides the chosen ones.
struct Draw {
  int first = 0;   ///< of the cost model's ranking
  int random = 0;  ///< of the rest
  int ablate = 0;  ///< for each feature of the kernels, so many of the first that do without it
  std::uint64_t seed = 1;
  KernelList kernels = {};  ///< of each, the two configurations that are predicted to be best

  bool empty() const { return first + random + ablate == 0 && kernels.empty(); }
};

/// Of one main loop, or with no name of all. Distinct, the model's first ones first; the same ones for the same seed
/// and problem.
std::vector<KernelConfig> draw(const Draw& wanted, const Problem& problem, Context& context,
                               std::string_view main_loop);

/// The features that Draw::ablate leaves out, one after the other; tools/ablation.py has them by the same names.
std::vector<std::string> ablated_features();

}  // namespace jitgemm::cli
