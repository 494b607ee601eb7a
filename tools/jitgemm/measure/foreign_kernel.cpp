#include "measure/foreign_kernel.hpp"

#include "backend/backend.hpp"
#include "backend/cuda/driver_api.hpp"

namespace jitgemm::cli {
namespace {

void check(CUresult result, const char* call) {
  cuda::check(cuda::driver(), result, ErrorCode::launch_failed, call,
              "the kernels that stand beside those that are timed cannot run: use --protocol rep without --eager");
}

}  // namespace

ForeignKernel::ForeignKernel(Backend& backend, const std::string& text, const std::string& entry,
                             std::size_t smem_bytes)
    : smem_bytes_(smem_bytes) {
  const KernelBinary binary = backend.compile(
      {.text = text, .entry = entry, .architecture = backend.device().architecture(), .config = "no GEMM: " + entry});
  const cuda::DriverApi& api = cuda::driver();
  check(api.module_load_data(&module_, binary.code.data()), "cuModuleLoadData");
  try {
    check(api.module_get_function(&function_, module_, entry.c_str()), "cuModuleGetFunction");
    if (smem_bytes > 0) {
      check(api.func_set_attribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(smem_bytes)),
            "cuFuncSetAttribute");
    }
  } catch (...) {
    api.module_unload(module_);
    throw;
  }
}

ForeignKernel::~ForeignKernel() { cuda::driver().module_unload(module_); }

void ForeignKernel::launch(int blocks, int threads, void** parameters, Stream stream) const {
  CUlaunchConfig config{};
  config.gridDimX = unsigned(blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = unsigned(threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = unsigned(smem_bytes_);
  config.hStream = stream;
  check(cuda::driver().launch_kernel_ex(&config, function_, parameters, nullptr), "cuLaunchKernelEx");
}

}  // namespace jitgemm::cli
