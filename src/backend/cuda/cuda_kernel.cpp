#include "backend/cuda/cuda_kernel.hpp"

#include <string>

#include "util/log.hpp"

namespace jitgemm::cuda {

CudaKernel::~CudaKernel() {
  if (triggers) triggers->remove(function);
  if (module) context.attempt("cuModuleUnload", [&] { return context.api.module_unload(module); });
}

std::unique_ptr<CudaKernel> load_kernel(const DeviceContext& context, EarlyTriggers* triggers,
                                        const KernelBinary& binary, std::size_t smem_bytes) {
  const DriverApi& api = context.api;
  const auto require = [&](CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return;
    if (is_of_capture(result)) {
      throw driver_error(
          api, result, ErrorCode::not_capturable, call,
          "the kernel is not loaded yet and stream capture forbids it: run gemm() with this problem once "
          "before the capture");
    }
    int version = 0;
    const bool known = api.driver_get_version(&version) == CUDA_SUCCESS;
    throw driver_error(
        api, result, ErrorCode::load_failed, call,
        "the driver" +
            (known ? " (CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) + ")"
                   : "") +
            " does not take what " + binary.compiler + " made for " + binary.architecture +
            ": update the driver, or name an older NVRTC in JITGEMM_NVRTC");
  };

  auto kernel = std::make_unique<CudaKernel>(context, triggers);
  require(api.module_load_data(&kernel->module, binary.code.data()), "cuModuleLoadData");
  require(api.module_get_function(&kernel->function, kernel->module, binary.entry.c_str()), "cuModuleGetFunction");
  if (smem_bytes > 48 * 1024) {  // more than a launch may ask for unannounced
    require(api.func_set_attribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(smem_bytes)),
            "cuFuncSetAttribute");
  }
  // Also makes a driver that loads lazily load now, and not in the first launch, which may be captured.
  int registers = 0, local_bytes = 0;
  require(api.func_get_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel->function), "cuFuncGetAttribute");
  require(api.func_get_attribute(&local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel->function),
          "cuFuncGetAttribute");
  if (triggers) triggers->add(kernel->function);
  logger().debug("loaded {}: {} registers, {} bytes of local memory a thread", binary.entry, registers, local_bytes);
  return kernel;
}

}  // namespace jitgemm::cuda
