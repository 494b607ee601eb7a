#include "plan/family.hpp"

#include "jitgemm/error.hpp"

namespace jitgemm {

const PlanFamily& plan_family_of(MainLoop main_loop) {
  for (const PlanFamily* family : plan_families)
    if (family->main_loop == main_loop) return *family;
  throw Error(ErrorCode::internal, "a main loop without a family");
}

}  // namespace jitgemm
