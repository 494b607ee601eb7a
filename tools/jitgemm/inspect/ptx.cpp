#include "inspect/ptx.hpp"

#include "backend/cuda/nvrtc.hpp"

namespace jitgemm::cli {

std::string ptx_of(const KernelText& kernel, const std::string& architecture, const KernelConfig& config) {
  return cuda::ptx_of(
      cuda::nvrtc(),
      {.text = kernel.text, .entry = kernel.entry, .architecture = architecture, .config = to_string(config)});
}

}  // namespace jitgemm::cli
