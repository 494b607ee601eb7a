#include "jit/call.hpp"

#include <algorithm>

#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "jit/source_generator.hpp"
#include "kernels/packing.hpp"

namespace jitgemm {
namespace {

constexpr KernelRole packing{
    .name = "packing",
    .runs = [](const NormalProblem& problem, const KernelConfig& config) { return packs(config) && reads_ab(problem); },
    .generate = generate_packing,
    .smem_bytes = [](const NormalProblem& problem,
                     const KernelConfig& config) { return packing_of(problem, config).launch.smem_bytes; },
    .prepare =
        [](const Part& part, Step& step) {
          Packing copies = packing_of(part.problem, part.config);
          if (part.has_packed_b) {
            copies.launch.grid -= copies.blocks_b;
            copies.blocks_b = 0;
          }
          step.grid = copies.launch;
          step.set_arguments([&] {
            return make_pack_arguments(part.problem, part.config, copies, part.shape, part.operands, part.workspace,
                                       columns_of_d(part.whole));
          });
        },
};

constexpr KernelRole gemm{
    .name = "gemm",
    .runs = [](const NormalProblem&, const KernelConfig&) { return true; },
    .generate = generate,
    .smem_bytes = [](const NormalProblem& problem,
                     const KernelConfig& config) { return launch_shape(problem, config).smem_bytes; },
    .prepare =
        [](const Part& part, Step& step) {
          step.grid = part.shape;
          const auto make = [&] {
            return make_arguments(part.problem, part.config, part.shape, part.operands, part.workspace, part.encode);
          };
          const auto with_epilogue = [&] {
            return make_custom_epilogue_arguments(make(), part.whole, part.operands, part.row, part.column);
          };
          const auto with_groups = [&] {
            return make_group_arguments(with_epilogue(), part.problem, part.config, part.operands, part.workspace);
          };
          const auto with_blocks = [&] {
            return make_block_scales_arguments(make(), part.whole, part.config, part.row, part.column);
          };
          switch (arguments_kind(part.problem, part.problem.sharding)) {
            case ArgumentsKind::plain:
              step.set_arguments(make);
              break;
            case ArgumentsKind::custom_epilogue:
              step.set_arguments(with_epilogue);
              break;
            case ArgumentsKind::epilogue_scales:
              step.set_arguments([&] {
                return make_epilogue_scales_arguments(with_epilogue(), part.whole, part.config, part.row, part.column);
              });
              break;
            case ArgumentsKind::own_scales:
              step.set_arguments([&] {
                return make_own_scales_arguments(with_blocks(), part.whole, part.row, part.column, part.operands);
              });
              break;
            case ArgumentsKind::block_scales:
              step.set_arguments(with_blocks);
              break;
            case ArgumentsKind::batch_block_scales:
              step.set_arguments(
                  [&] { return make_batch_block_scales_arguments(with_blocks(), part.whole, part.config); });
              break;
            case ArgumentsKind::groups:
              step.set_arguments(with_groups);
              break;
            case ArgumentsKind::group_block_scales:
              step.set_arguments(
                  [&] { return make_group_block_scales_arguments(with_groups(), part.problem, part.config); });
              break;
            case ArgumentsKind::shards:
              step.set_arguments([&] {
                return make_shard_arguments(make(), part.problem, part.config, part.shape, *part.workspace.shards,
                                            part.encode);
              });
              break;
          }
        },
};

// In the order in which they run.
constexpr std::array roles{&packing, &gemm};
static_assert(roles.size() <= most_kernels);

void launch_part(const CallKernels& kernels, const Part& part, FunctionRef<void(const Step&)> launch) {
  FixedList<Step, most_kernels> steps;
  for (const CallKernel& one : kernels) {
    Step& step = steps.extend();
    step.kernel = one.kernel;
    one.role->prepare(part, step);
    if (step.grid.grid == 0) steps.remove_last();
  }
  for (const Step& step : steps) launch(step);
}

}  // namespace

FixedList<const KernelRole*, most_kernels> roles_of(const NormalProblem& normalised, const KernelConfig& config) {
  FixedList<const KernelRole*, most_kernels> list;
  for (const KernelRole* role : roles) {
    if (role->runs(normalised, config)) list.add(role);
  }
  return list;
}

const KernelRole& gemm_role() { return gemm; }

CallKernels get_kernels(KernelStore& store, const NormalProblem& normalised, const KernelConfig& config,
                        const DeviceInfo& device) {
  CallKernels kernels;
  for (const KernelRole* role : roles_of(normalised, config)) {
    const KernelSource source = role->generate(normalised, config, device);
    kernels.add({role, store.get(source, role->smem_bytes(normalised, config)).get()});
  }
  return kernels;
}

Ready make_ready(KernelStore& store, const NormalProblem& normalised, const KernelConfig& config,
                 const DeviceInfo& device) {
  return {config, launch_shape_on(device, normalised, config), get_kernels(store, normalised, config, device)};
}

void for_each_step(const Ready& ready, const NormalProblem& problem, const Operands& operands,
                   const Workspace& workspace, const EncodeTensorMap& encode, FunctionRef<void(const Step&)> launch) {
  const KernelConfig& config = ready.config;
  const Slab slab = slab_of(problem, config);
  if (is_whole(slab, problem)) {
    return launch_part(ready.kernels, {problem, problem, config, ready.shape, operands, workspace, encode, 0, 0, false},
                       launch);
  }
  for (std::int64_t column = 0; column < problem.n; column += slab.columns) {
    for (std::int64_t row = 0; row < problem.m; row += slab.rows) {
      NormalProblem part = problem;
      part.m = std::min(slab.rows, problem.m - row);
      part.n = std::min(slab.columns, problem.n - column);
      const Operands its = operands_at(problem, operands, row, column);
      launch_part(ready.kernels,
                  {problem, part, config, launch_shape(part, config), its, workspace, encode, row, column, row > 0},
                  launch);
    }
  }
}

}  // namespace jitgemm
