#include "kernels/family.hpp"

#include "jitgemm/error.hpp"

namespace jitgemm {

const KernelFamily& family_of(MainLoop main_loop) {
  for (const KernelFamily* family : kernel_families)
    if (family->main_loop == main_loop) return *family;
  throw Error(ErrorCode::internal, "a main loop without a family");
}

}  // namespace jitgemm
