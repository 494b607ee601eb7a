#include "backend/cuda/neighbour.hpp"

#include "backend/cuda/launch_config.hpp"

namespace jitgemm::cuda {
namespace {

constexpr int threads = 128;

// Each thread writes a word of the block's shared memory and reads its neighbour's: as little as a kernel can do.
constexpr const char* ptx = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry neighbour() {
  .shared .align 4 .u32 words[128];
  .reg .u32 %t, %next, %at, %value;
  mov.u32 %t, %tid.x;
  mov.u32 %at, words;
  shl.b32 %next, %t, 2;
  add.u32 %at, %at, %next;
  st.shared.u32 [%at], %t;
  bar.sync 0;
  xor.b32 %at, %at, 4;
  ld.volatile.shared.u32 %value, [%at];
  ret;
}
)";

constexpr const char* way_out = "the driver's PTX compiler (libnvidia-ptxjitcompiler) may be missing";

}  // namespace

Neighbour::~Neighbour() {
  if (module_) context_.attempt("cuModuleUnload", [&] { return context_.api.module_unload(module_); });
}

CUfunction Neighbour::function() {
  const std::lock_guard lock(mutex_);
  if (!module_) {
    const Relaxed relaxed(context_);
    check(context_.api, context_.api.module_load_data(&module_, ptx), ErrorCode::load_failed, "cuModuleLoadData",
          way_out);
  }
  if (!function_)
    check(context_.api, context_.api.module_get_function(&function_, module_, "neighbour"), ErrorCode::load_failed,
          "cuModuleGetFunction", way_out);
  return function_;
}

void Neighbour::launch(int blocks, Stream stream) {
  const LaunchConfig config({.grid = blocks, .threads = threads}, false, stream);
  check(context_.api, context_.api.launch_kernel_ex(&config, function(), nullptr, nullptr), ErrorCode::launch_failed,
        "cuLaunchKernelEx", "an earlier kernel or copy on this CUDA context may have failed");
}

}  // namespace jitgemm::cuda
