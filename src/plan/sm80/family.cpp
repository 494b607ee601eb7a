// The portable kernels: every problem, on every GPU since sm_80.
#include "plan/family.hpp"
#include "plan/sm80/candidates.hpp"
#include "plan/sm80/cost_model.hpp"

namespace jitgemm {
namespace {

std::vector<double*> fitted_rates(DeviceRates& rates) {
  std::vector<double*> values;
  for (const auto& [name, value] : rates.of<PortableRates>().fields()) values.push_back(value);
  return values;
}

}  // namespace

const PlanFamily sm80_plan{.main_loop = MainLoop::sm80,
                           .candidates = candidates_sm80,
                           .schedules = schedules_sm80,
                           .clusters = nullptr,
                           .predict = predict_sm80,
                           .shortlist = nullptr,
                           .typical = nullptr,
                           .fitted_rates = fitted_rates};

}  // namespace jitgemm
