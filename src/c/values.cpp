#include "c/values.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace jitgemm::c {
namespace {

/// Words that later versions will give a meaning.
template <std::size_t count>
void check_reserved(const char* name, const std::int64_t (&words)[count], std::int32_t word = 0) {
  if (word == 0 && std::all_of(std::begin(words), std::end(words), [](std::int64_t one) { return one == 0; })) return;
  refuse(
      JITGEMM_STATUS_INVALID_ARGUMENT,
      std::string(name) + " has a reserved word that is not 0; call the struct's _init() first, and leave those alone");
}

jitgemm_matrix to_c(const Matrix& matrix) {
  const auto& [type, layout, ld, stride, alignment, scaling, batch_mode] = matrix;
  jitgemm_matrix to{};
  to.type = number_of(type);
  to.layout = number_of(layout);
  to.ld = ld;
  to.stride = stride;
  to.alignment = alignment;
  to.scaling = number_of(scaling);
  to.batch_mode = number_of(batch_mode);
  return to;
}

Matrix matrix_of(const jitgemm_matrix& from, const char* name) {
  check_reserved(name, from.reserved, from.reserved_word);
  Matrix to;
  auto& [type, layout, ld, stride, alignment, scaling, batch_mode] = to;
  type = enumerator_of<DataType>(from.type);
  layout = enumerator_of<Layout>(from.layout);
  ld = from.ld;
  stride = from.stride;
  alignment = from.alignment;
  scaling = enumerator_of<Scaling>(from.scaling);
  batch_mode = enumerator_of<BatchMode>(from.batch_mode);
  return to;
}

jitgemm_epilogue to_c(const Epilogue& epilogue) {
  const auto& [bias, activation, slope, function] = epilogue;
  jitgemm_epilogue to{};
  to.bias = number_of(bias);
  to.activation = number_of(activation);
  to.slope = slope;
  to.function = function;
  return to;
}

Epilogue epilogue_of(const jitgemm_epilogue& from) {
  check_reserved("jitgemm_problem.epilogue", from.reserved);
  Epilogue to;
  auto& [bias, activation, slope, function] = to;
  bias = enumerator_of<Bias>(from.bias);
  activation = enumerator_of<Activation>(from.activation);
  slope = from.slope;
  function = from.function;
  return to;
}

Constraints constraints_of(const jitgemm_constraints& from) {
  check_reserved("jitgemm_options.constraints", from.reserved);
  Constraints to;
  auto& [batch_invariant, workspace_bytes, sms] = to;
  batch_invariant = from.batch_invariant != 0;
  workspace_bytes = from.workspace_bytes;
  sms = from.sms;
  return to;
}

}  // namespace

void check_reserved(const char* name, std::int32_t word) { check_reserved(name, {0}, word); }

jitgemm_problem to_c(const Problem& problem) {
  const auto& [m, n, k, batch, a, b, c, d, alpha, beta, epilogue, accumulation, grouping, expected_m] = problem;
  jitgemm_problem to{};
  to.size = sizeof to;
  to.m = m;
  to.n = n;
  to.k = k;
  to.batch = batch;
  to.a = to_c(a);
  to.b = to_c(b);
  to.c = to_c(c);
  to.d = to_c(d);
  to.alpha = alpha;
  to.beta = beta;
  to.epilogue = to_c(epilogue);
  to.accumulation = number_of(accumulation);
  to.grouping = number_of(grouping);
  to.expected_m = expected_m;
  return to;
}

Problem problem_of(const jitgemm_problem* given) {
  const jitgemm_problem from = read(given);
  Problem to;
  auto& [m, n, k, batch, a, b, c, d, alpha, beta, epilogue, accumulation, grouping, expected_m] = to;
  m = from.m;
  n = from.n;
  k = from.k;
  batch = from.batch;
  a = matrix_of(from.a, "jitgemm_problem.a");
  b = matrix_of(from.b, "jitgemm_problem.b");
  c = matrix_of(from.c, "jitgemm_problem.c");
  d = matrix_of(from.d, "jitgemm_problem.d");
  alpha = from.alpha;
  beta = from.beta;
  epilogue = epilogue_of(from.epilogue);
  accumulation = enumerator_of<Accumulation>(from.accumulation);
  grouping = enumerator_of<Grouping>(from.grouping);
  expected_m = from.expected_m;
  return to;
}

// One layout for both sides, so that a call copies none.
static_assert(sizeof(EpilogueValue) == sizeof(jitgemm_epilogue_value) &&
              offsetof(EpilogueValue, in) == offsetof(jitgemm_epilogue_value, in) &&
              offsetof(EpilogueValue, out) == offsetof(jitgemm_epilogue_value, out) &&
              offsetof(EpilogueValue, scalar) == offsetof(jitgemm_epilogue_value, scalar) &&
              offsetof(EpilogueValue, ld) == offsetof(jitgemm_epilogue_value, ld) &&
              offsetof(EpilogueValue, stride) == offsetof(jitgemm_epilogue_value, stride));

jitgemm_operands to_c(const Operands& operands) {
  const auto& [a, b, c, d, bias, scale_a, scale_b, scale_d, scales_d, group_rows, epilogue, epilogue_count, workspace,
               workspace_bytes] = operands;
  return {sizeof(jitgemm_operands),
          a,
          b,
          c,
          d,
          bias,
          scale_a,
          scale_b,
          scale_d,
          workspace,
          workspace_bytes,
          reinterpret_cast<const jitgemm_epilogue_value*>(epilogue),
          epilogue_count,
          scales_d,
          group_rows};
}

Operands operands_of(const jitgemm_operands* given) {
  const jitgemm_operands from = read(given);
  Operands to;
  auto& [a, b, c, d, bias, scale_a, scale_b, scale_d, scales_d, group_rows, epilogue, epilogue_count, workspace,
         workspace_bytes] = to;
  a = from.a;
  b = from.b;
  c = from.c;
  d = from.d;
  bias = from.bias;
  scale_a = from.scale_a;
  scale_b = from.scale_b;
  scale_d = from.scale_d;
  scales_d = from.scales_d;
  workspace = from.workspace;
  workspace_bytes = from.workspace_bytes;
  epilogue = reinterpret_cast<const EpilogueValue*>(from.epilogue);
  epilogue_count = from.epilogue_count;
  group_rows = from.group_rows;
  return to;
}

jitgemm_config to_c(const KernelConfig& config) {
  const auto& [main_loop, block_m, block_n, block_k, group_m, stages, warps, cluster_m, cluster_n, cluster_k, ping_pong,
               swap_ab, pack_a, pack_b, schedule, splits, grid, cluster_at_launch] = config;
  jitgemm_config to{};
  to.size = sizeof to;
  to.main_loop = number_of(main_loop);
  to.block_m = block_m;
  to.block_n = block_n;
  to.block_k = block_k;
  to.group_m = group_m;
  to.stages = stages;
  to.warps = warps;
  to.cluster_m = cluster_m;
  to.cluster_n = cluster_n;
  to.cluster_k = cluster_k;
  to.ping_pong = ping_pong;
  to.swap_ab = swap_ab;
  to.pack_a = pack_a;
  to.pack_b = pack_b;
  to.schedule = number_of(schedule);
  to.splits = splits;
  to.grid = grid;
  to.cluster_at_launch = cluster_at_launch;
  return to;
}

KernelConfig config_of(const jitgemm_config* given) {
  const jitgemm_config from = read(given);
  KernelConfig to;
  auto& [main_loop, block_m, block_n, block_k, group_m, stages, warps, cluster_m, cluster_n, cluster_k, ping_pong,
         swap_ab, pack_a, pack_b, schedule, splits, grid, cluster_at_launch] = to;
  main_loop = enumerator_of<MainLoop>(from.main_loop);
  block_m = from.block_m;
  block_n = from.block_n;
  block_k = from.block_k;
  group_m = from.group_m;
  stages = from.stages;
  warps = from.warps;
  cluster_m = from.cluster_m;
  cluster_n = from.cluster_n;
  cluster_k = from.cluster_k;
  ping_pong = from.ping_pong != 0;
  swap_ab = from.swap_ab != 0;
  pack_a = from.pack_a != 0;
  pack_b = from.pack_b != 0;
  schedule = enumerator_of<Schedule>(from.schedule);
  splits = from.splits;
  grid = from.grid;
  cluster_at_launch = from.cluster_at_launch != 0;
  return to;
}

std::optional<KernelConfig> optional_config_of(const jitgemm_config* config) {
  return config ? std::optional(config_of(config)) : std::nullopt;
}

jitgemm_constraints to_c(const Constraints& constraints) {
  const auto& [batch_invariant, workspace_bytes, sms] = constraints;
  jitgemm_constraints to{};
  to.batch_invariant = batch_invariant;
  to.workspace_bytes = workspace_bytes;
  to.sms = sms;
  return to;
}

jitgemm_options to_c(const ContextOptions& options) {
  const auto& [device, cuda_device, architecture, tuning, tuning_budget_seconds, tuning_total_budget_seconds, progress,
               constraints, workspace_bound_bytes, bucket_m, dependent_launch, compile_in_background, at_hand_within,
               fallback, cache_dir, emulator_sm_count, emulator_seed] = options;
  jitgemm_options to{};
  to.size = sizeof to;
  to.device = number_of(device);
  to.cuda_device = cuda_device;
  to.tuning_budget_seconds = tuning_budget_seconds;
  to.tuning_total_budget_seconds = tuning_total_budget_seconds;
  to.constraints = to_c(constraints);
  to.workspace_bound_bytes = workspace_bound_bytes;
  to.tuning = tuning ? number_of(*tuning) : JITGEMM_TUNING_DEFAULT;
  to.bucket_m = bucket_m;
  to.dependent_launch = dependent_launch;
  to.compile_in_background = compile_in_background;
  to.at_hand_within = at_hand_within;
  to.emulator_seed = emulator_seed;
  to.emulator_sm_count = emulator_sm_count;
  return to;
}

ContextOptions options_of(const jitgemm_options* given) {
  const jitgemm_options from = read(given);
  check_reserved("jitgemm_options", from.reserved_word);
  ContextOptions to;
  auto& [device, cuda_device, architecture, tuning, tuning_budget_seconds, tuning_total_budget_seconds, progress,
         constraints, workspace_bound_bytes, bucket_m, dependent_launch, compile_in_background, at_hand_within,
         fallback, cache_dir, emulator_sm_count, emulator_seed] = to;
  device = enumerator_of<Device>(from.device);
  cuda_device = from.cuda_device;
  if (from.architecture) architecture = from.architecture;
  if (from.tuning != JITGEMM_TUNING_DEFAULT) tuning = enumerator_of<Tuning>(from.tuning);
  tuning_budget_seconds = from.tuning_budget_seconds;
  tuning_total_budget_seconds = from.tuning_total_budget_seconds;
  if (from.progress) {
    progress = [call = from.progress, user = from.progress_user](const Problem& measured, int done, int total) {
      const jitgemm_problem problem = to_c(measured);
      run_callback("progress", [&] { return call(user, &problem, done, total); });
    };
  }
  constraints = constraints_of(from.constraints);
  workspace_bound_bytes = from.workspace_bound_bytes;
  bucket_m = from.bucket_m != 0;
  dependent_launch = from.dependent_launch != 0;
  compile_in_background = from.compile_in_background != 0;
  at_hand_within = from.at_hand_within;
  if (from.fallback) {
    fallback = [call = from.fallback, user = from.fallback_user](const Problem& asked, const Operands& memory,
                                                                 Stream stream) {
      const jitgemm_problem problem = to_c(asked);
      const jitgemm_operands operands = to_c(memory);
      std::int32_t served = 0;
      run_callback("fallback", [&] { return call(user, &problem, &operands, stream, &served); });
      return served != 0;
    };
  }
  if (from.cache_dir) cache_dir = from.cache_dir;
  emulator_sm_count = from.emulator_sm_count;
  emulator_seed = from.emulator_seed;
  return to;
}

}  // namespace jitgemm::c

using namespace jitgemm::c;

jitgemm_status jitgemm_problem_init_sized(jitgemm_problem* problem, std::size_t size) {
  return guarded([&] { init(problem, size); });
}
jitgemm_status jitgemm_operands_init_sized(jitgemm_operands* operands, std::size_t size) {
  return guarded([&] { init(operands, size); });
}
jitgemm_status jitgemm_config_init_sized(jitgemm_config* config, std::size_t size) {
  return guarded([&] { init(config, size); });
}
jitgemm_status jitgemm_options_init_sized(jitgemm_options* options, std::size_t size) {
  return guarded([&] { init(options, size); });
}
