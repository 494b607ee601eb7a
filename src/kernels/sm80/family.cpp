// The portable kernels: cp.async, ldmatrix, mma.sync. Every GPU since sm_80.
#include "kernels/family.hpp"
#include "core/type_rules.hpp"
#include "geometry_sm80.cuh"
#include "kernels/parameters.hpp"

namespace jitgemm {
namespace {

Footprint footprint(const device::KernelParameters& parameters) {
  const device::sm80::Geometry geometry = device::sm80::geometry(parameters);
  return {.threads = geometry.threads, .smem_bytes = geometry.smem_bytes};
}

std::string why_illegal(const KernelConfig& config, const NormalProblem& normalised,
                        const KernelProblem& kernel_problem, const DeviceInfo& device) {
  if (normalised.sharding != Sharding::none) return "shards of other ranks are for the sm90 main loop";
  if ((is_fp8(kernel_problem.a.type) || is_fp8(kernel_problem.b.type)) && device.compute_capability < 89)
    return "e4m3 and e5m2 need sm_89 or newer";
  const char* rule = device::sm80::broken_rule(parameters_of(config, kernel_problem));
  return rule ? rule : "";
}

TemplateFiles template_files(DataType a) {
  const char* multiply = a == f32 ? "multiply_f32" : a == f64 ? "multiply_f64" : "multiply_mma";
  return {.geometry = {"geometry", "geometry_sm80"},
          .ptx = {"special_registers", "warp", "barrier", "convert", "math", "global", "shared", "dependent_launch",
                  "cp_async", "mma"},
          .main_loop = {"operand_tile", "paired_source", multiply, "block_scales_sm80", "operand_loader_sm80",
                        "mainloop_sm80"}};
}

}  // namespace

const KernelFamily sm80_family{.main_loop = MainLoop::sm80,
                               .footprint = footprint,
                               .why_illegal = why_illegal,
                               .template_files = template_files,
                               .macros = nullptr,
                               .tensor_maps = nullptr,
                               .block_slots = nullptr,
                               .takes_packed = false,
                               .promotes = false,
                               .has_one_tile_kernels = false,
                               .adapts_to_groups = false,
                               .portable = true};

}  // namespace jitgemm
