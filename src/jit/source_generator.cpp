#include "jit/source_generator.hpp"

#include <numeric>
#include <utility>
#include <vector>

#include "core/activations.hpp"
#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "core/problem_fields.hpp"
#include "core/type_rules.hpp"
#include "jit/arguments.hpp"
#include "jit/custom_epilogue_source.hpp"
#include "jit/template_values.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/version.hpp"
#include "kernels/family.hpp"
#include "kernels/kernel_problem.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/packing.hpp"
#include "kernels/parameters.hpp"

namespace jitgemm {
namespace {

/// The values that are the library's own, whatever the problem: whole files, and those of templates/ptx/ together.
TemplateValues files_of(const std::vector<std::string>& names, const std::vector<std::string>& ptx) {
  TemplateValues values{{"version", JITGEMM_VERSION}, {"ptx", text_of(ptx, "ptx/")}};
  for (const std::string& name : names) values.insert({name, template_file(name)});
  return values;
}

TemplateValues gemm_files(const TemplateFiles& files) {
  TemplateValues values = files_of({"types.cuh",
                                    "schedule.cuh",
                                    "arguments.cuh",
                                    "address_map.cuh",
                                    "custom_epilogue_arguments.cuh",
                                    "work_tile.cuh",
                                    "group_schedule.cuh",
                                    "group_arguments.cuh",
                                    "shard_arguments.cuh",
                                    "groups.cuh",
                                    "fragment.cuh",
                                    "pairs.cuh",
                                    "activation.cuh",
                                    "functor.cuh",
                                    "memory.cuh",
                                    "warp_vector.cuh",
                                    "scales.cuh",
                                    "block_scales_arguments.cuh",
                                    "own_scales_arguments.cuh",
                                    "block_scales.cuh",
                                    "custom_epilogue.cuh",
                                    "epilogue.cuh",
                                    "fixup.cuh"},
                                   files.ptx);
  values.insert({{"geometry", text_of(files.geometry)}, {"main_loop", text_of(files.main_loop)}});
  return values;
}

TemplateValues packing_files() {
  return files_of({"types.cuh", "pack_arguments.cuh", "pack.cuh"},
                  {"special_registers", "barrier", "global", "shared", "dependent_launch"});
}

TemplateValues check_files() {
  return files_of(
      {"types.cuh", "schedule.cuh", "arguments.cuh", "check_arguments.cuh", "activation.cuh", "functor.cuh",
       "check.cuh"},
      {"special_registers", "barrier", "global", "shared", "words_64", "convert", "math", "dependent_launch"});
}

TemplateValues begin_call_files() {
  return files_of({"types.cuh", "schedule.cuh", "arguments.cuh", "shard_arguments.cuh", "begin_call_arguments.cuh",
                   "wait_for_rank.cuh", "begin_call.cuh"},
                  {"special_registers", "barrier", "global", "dependent_launch", "system"});
}

TemplateValues sum_epilogue_files() {
  return files_of(
      {"types.cuh", "schedule.cuh", "arguments.cuh", "finish_sums_arguments.cuh", "sum_epilogue_arguments.cuh",
       "activation.cuh", "functor.cuh", "memory.cuh", "finish_sums.cuh", "sum_epilogue.cuh"},
      {"special_registers", "global", "convert", "math", "dependent_launch"});
}

TemplateValues one_shot_files() {
  return files_of({"types.cuh", "schedule.cuh", "arguments.cuh", "finish_sums_arguments.cuh", "shard_arguments.cuh",
                   "one_shot_arguments.cuh", "activation.cuh", "functor.cuh", "memory.cuh", "finish_sums.cuh",
                   "wait_for_rank.cuh", "one_shot.cuh"},
                  {"special_registers", "barrier", "global", "bits", "convert", "math", "dependent_launch", "system"});
}

std::string device_type(DataType type) { return std::string(info_of(type).device_name); }

std::string_view partition_name(device::Partition partition) {
  switch (partition) {
    case device::Partition::one_tile:
      return "one_tile";
    case device::Partition::whole_tiles:
      return "whole_tiles";
    case device::Partition::split_k:
      return "split_k";
    case device::Partition::stream_k:
      return "stream_k";
  }
  throw Error(ErrorCode::internal, "a partition without a name");
}

std::string_view sharding_name(Sharding sharding) {
  switch (sharding) {
    case Sharding::none:
      return "none";
    case Sharding::gathered_a:
      return "gathered_a";
    case Sharding::scattered_d:
      return "scattered_d";
  }
  throw Error(ErrorCode::internal, "a sharding without a name");
}

std::string flag(bool value) { return value ? "true" : "false"; }

/// "true, false, true": of the scalars, by the list of fields. That others are zero is no kernel's concern.
std::string nonzero_scalars(const Problem& p) {
  std::string text;
  for_each_scalar([&](const ProblemField& field, auto member) {
    text.append(text.empty() ? "" : ", ").append(flag(!field.absent_if_zero || member(p) != 0));
  });
  return text;
}

std::string describe_epilogue(const Problem& p) {
  std::string text;
  if (has_groups(p))
    text += ", groups by " + std::string(to_string(p.grouping)) + (has_pointers_to_b(p) ? ", each B by a pointer" : "");
  else if (p.batch > 1)
    text += ", batched";
  if (reads_c(p)) text += ", with C";
  if (p.epilogue.bias != Bias::none) text += ", with bias " + std::string(to_string(p.epilogue.bias));
  if (p.epilogue.activation != Activation::none) text += ", " + std::string(to_string(p.epilogue.activation));
  if (has_epilogue_function(p)) text += ", with the epilogue " + std::to_string(p.epilogue.function);
  return text;
}

/// What the arithmetic of a sum and its epilogue depends on, of every kernel that has both.
TemplateValues arithmetic_of(const Problem& p) {
  return {{"element_a", device_type(p.a.type)},
          {"element_b", device_type(p.b.type)},
          {"accumulator", device_type(accumulator_of(p))},
          {"compute", device_type(compute_type_of(p))},
          {"element_c", device_type(type_of_c(p))},
          {"element_d", device_type(p.d.type)},
          {"nonzero", nonzero_scalars(p)},
          {"batched", flag(p.batch > 1 || has_groups(p))},
          {"has_scales", flag(takes_scales(p))},
          {"scaling_a", std::string(to_string(p.a.scaling))},
          {"scaling_b", std::string(to_string(p.b.scaling))},
          {"bias", std::string(to_string(p.epilogue.bias))},
          {"activation", std::string(to_string(p.epilogue.activation))},
          {"activation_text", std::string(info_of(p.epilogue.activation).device_text)}};
}

/// What of the problem the source depends on, in words.
std::string describe(const Problem& p, bool promoted) {
  std::string text = "A " + std::string(to_string(p.a.type)) + " " + std::string(to_string(p.a.layout)) + ", B " +
                     std::string(to_string(p.b.type)) + " " + std::string(to_string(p.b.layout)) + ", D " +
                     std::string(to_string(p.d.type));
  text += describe_epilogue(p);
  if (p.a.scaling != Scaling::value) text += ", scales of A: " + std::string(to_string(p.a.scaling));
  if (p.b.scaling != Scaling::value) text += ", scales of B: " + std::string(to_string(p.b.scaling));
  if (p.d.scaling != Scaling::value) text += ", scales of D: " + std::string(to_string(p.d.scaling));
  if (promoted) text += ", promoted";
  return text;
}

std::string entry_of(const KernelProblem& p, const KernelConfig& c) {
  const bool a_k_major = p.a.layout == Layout::row_major, b_k_major = p.b.layout == Layout::column_major;
  return "gemm_" + std::string(to_string(c.main_loop)) + "_" + std::to_string(c.block_m) + "x" +
         std::to_string(c.block_n) + "x" + std::to_string(c.block_k) + "_" + std::string(to_string(p.a.type)) + "_" +
         (p.a.type == p.b.type ? "" : std::string(to_string(p.b.type)) + "_") + std::string(to_string(p.d.type)) + "_" +
         (a_k_major ? "n" : "t") + (b_k_major ? "t" : "n") + "_" +
         (has_groups(p) ? std::string(to_string(p.grouping)) : std::string(partition_name(partition_of(c))));
}

/// The structs of templates/*_arguments.cuh, in the order of ArgumentsKind.
constexpr std::array argument_structs{"Arguments",          "CustomEpilogueArguments",   "EpilogueScalesArguments",
                                      "OwnScalesArguments", "BlockScalesArguments",      "BatchBlockScalesArguments",
                                      "GroupArguments",     "GroupBlockScalesArguments", "ShardArguments"};
static_assert(argument_structs.size() == std::size_t(ArgumentsKind::shards) + 1);

/// A kernel that finishes sums which ranks have. `values`: of its template `file`, what is this kernel's alone.
KernelSource generate_of_sums(const std::string& file, const std::string& entry, const std::string& config,
                              TemplateValues values, const Problem& p, const DeviceInfo& device) {
  const std::string from(to_string(type_of_c(p))), to(to_string(p.d.type));
  KernelSource source;
  source.architecture = device.architecture();
  source.config = config;
  source.entry = entry + from + (from == to ? "" : "_" + to);
  values.merge(arithmetic_of(p));
  values.insert({{"architecture", source.architecture},
                 {"problem", "sums " + from + ", D " + to + describe_epilogue(p)},
                 {"dependent_launch", flag(device.launches_dependents())},
                 {"entry", source.entry}});
  source.text = fill_in(file, values);
  return source;
}

/// What divides the column of B where the second of two halves begins: blocks of 128 columns, and copies of four
/// columns' scales, see a difference up to 128.
std::int64_t up_step(const Problem& p) {
  constexpr std::int64_t block = 128;
  const bool differs = pairing_of(p) == Pairing::halves && has_block_scales(p);
  return differs ? std::gcd(pair_distance(p), block) : block;
}

/// The source without its text, and all values that the text depends on.
KernelSource outline(const NormalProblem& asked, const KernelConfig& c, const DeviceInfo& device,
                     TemplateValues& values) {
  const KernelProblem p = kernel_problem(asked, c);
  const device::Partition partition = partition_of(c);
  const bool promoted = parameters_of(c, p).promoted;
  const bool a_k_major = p.a.layout == Layout::row_major, b_k_major = p.b.layout == Layout::column_major;
  const KernelConfig compiled = compiled_part(c);

  KernelSource source;
  source.architecture = device.architecture();
  source.config = to_string(compiled);
  source.entry = entry_of(p, c);
  if (asked.sharding != Sharding::none) source.entry.append("_").append(sharding_name(asked.sharding));

  values = {{"config", "main loop " + source.config},
            {"architecture", source.architecture},
            {"block_m", std::to_string(c.block_m)},
            {"block_n", std::to_string(c.block_n)},
            {"block_k", std::to_string(c.block_k)},
            {"group_m", std::to_string(c.group_m)},
            {"stages", std::to_string(c.stages)},
            {"warps", std::to_string(c.warps)},
            {"cluster_m", std::to_string(compiled.cluster_m)},
            {"cluster_n", std::to_string(compiled.cluster_n)},
            {"cluster_k", std::to_string(compiled.cluster_k)},
            {"cluster_at_launch", flag(compiled.cluster_at_launch)},
            {"ping_pong", flag(c.ping_pong)},
            {"promoted", flag(promoted)},
            {"swap_ab", flag(c.swap_ab)},
            {"dependent_launch", flag(device.launches_dependents())},
            {"partition", std::string(partition_name(partition))},
            {"family", std::string(to_string(c.main_loop))},
            {"a_k_major", flag(a_k_major)},
            {"b_k_major", flag(b_k_major)},
            {"align_a", std::to_string(p.a.alignment)},
            {"align_b", std::to_string(p.b.alignment)},
            {"align_c", std::to_string(p.c.alignment)},
            {"align_d", std::to_string(p.d.alignment)},
            {"mma_fp8", flag(device.has_mma_fp8())},
            {"tensor_cores", flag(!is_simt(p.a.type))},
            {"entry", source.entry},
            {"scaling_d", std::string(to_string(p.d.scaling))},
            {"grouping", std::string(to_string(p.grouping))},
            {"b_by_pointers", flag(has_pointers_to_b(asked))},
            {"sharding", std::string(sharding_name(asked.sharding))},
            {"arguments", argument_structs[std::size_t(arguments_kind(p, asked.sharding))]},
            {"has_custom_epilogue", flag(has_epilogue_function(p))},
            {"narrows", flag(narrows(c, p))},
            {"fetches", flag(fetches(c, p))},
            {"pairing", std::string(to_string(pairing_of(p)))},
            {"ragged_pairs", flag(has_ragged_pairs(asked))},
            {"up_step", std::to_string(up_step(asked))},
            {"custom_epilogue",
             has_epilogue_function(p) ? custom_epilogue_source(epilogue_function(p), compute_type_of(p)) : ""},
            {"problem", describe(packed_problem(asked, c), promoted)}};
  values.merge(arithmetic_of(p));
  return source;
}

}  // namespace

KernelSource generate(const NormalProblem& asked, const KernelConfig& c, const DeviceInfo& device) {
  TemplateValues values;
  KernelSource source = outline(asked, c, device, values);
  const KernelProblem p = kernel_problem(asked, c);
  const KernelFamily& family = family_of(c);
  values.merge(gemm_files(family.template_files(p.a.type)));
  values["macros"] = family.macros ? family.macros(p, c) : "";
  source.text = fill_in("gemm.cu.in", values);
  if (has_epilogue_function(p))
    source.custom_epilogue_alone = custom_epilogue_alone(epilogue_function(p), compute_type_of(p));
  return source;
}

std::string entry_of(const NormalProblem& asked, const KernelConfig& c) {
  return entry_of(kernel_problem(asked, c), c);
}

std::string kernel_identity(const NormalProblem& asked, const KernelConfig& c, const DeviceInfo& device) {
  TemplateValues values;
  outline(asked, c, device, values);
  std::string text;
  for (const auto& [name, value] : values) text += value + ',';
  return text;
}

KernelSource generate_packing(const NormalProblem& p, const KernelConfig& c, const DeviceInfo& device) {
  const bool transpose_a = transposes_a(p, c), transpose_b = transposes_b(p, c);
  const bool interleaves = c.pack_b && interleaves_b(p);
  const auto what = [](bool transpose) { return std::string(transpose ? "transposed" : "copied"); };
  const std::string what_b = interleaves ? "interleaved" : what(transpose_b);
  const std::string size = std::to_string(size_of(p.a.type));
  KernelSource source;
  source.architecture = device.architecture();
  source.config = "packing";
  source.entry = "pack_" + size + "_" + what(transpose_a) + "_" + what_b;
  TemplateValues values = packing_files();
  values.insert({{"architecture", source.architecture},
                 {"size", size},
                 {"what_a", what(transpose_a)},
                 {"what_b", what_b},
                 {"element", size_of(p.a.type) == 1   ? "u8"
                             : size_of(p.a.type) == 2 ? "u16"
                                                      : "u32"},
                 {"dependent_launch", flag(device.launches_dependents())},
                 {"transpose_a", flag(transpose_a)},
                 {"transpose_b", flag(transpose_b)},
                 {"interleave_b", std::string(to_string(interleaves ? pairing_of(p) : Pairing::none))},
                 {"entry", source.entry}});
  source.text = fill_in("pack.cu.in", values);
  return source;
}

KernelSource generate_check(const NormalProblem& asked, const DeviceInfo& device) {
  NormalProblem p = asked;
  p.a.scaling = p.b.scaling = Scaling::value;  // what is measured has vectors of none, and blocks of all the same
  KernelSource source;
  source.architecture = device.architecture();
  source.config = "check";
  source.entry = "check_" + std::string(to_string(p.a.type)) + "_" +
                 (p.a.type == p.b.type ? "" : std::string(to_string(p.b.type)) + "_") +
                 std::string(to_string(p.d.type));
  std::string problem = "A " + std::string(to_string(p.a.type)) + ", B " + std::string(to_string(p.b.type)) + ", D " +
                        std::string(to_string(p.d.type)) + describe_epilogue(p);
  TemplateValues values = check_files();
  values.merge(arithmetic_of(p));
  values.insert({{"architecture", source.architecture},
                 {"problem", problem},
                 {"dependent_launch", flag(device.launches_dependents())},
                 {"entry", source.entry}});
  source.text = fill_in("check.cu.in", values);
  return source;
}

KernelSource generate_begin_call(const DeviceInfo& device) {
  KernelSource source;
  source.architecture = device.architecture();
  source.config = "begin_call";
  source.entry = "begin_call";
  TemplateValues values = begin_call_files();
  values.insert({{"architecture", source.architecture},
                 {"dependent_launch", flag(device.launches_dependents())},
                 {"entry", source.entry}});
  source.text = fill_in("begin_call.cu.in", values);
  return source;
}

KernelSource generate_sum_epilogue(const NormalProblem& p, bool in_pairs, const DeviceInfo& device) {
  TemplateValues values = sum_epilogue_files();
  values.insert({"in_pairs", flag(in_pairs)});
  return generate_of_sums("sum_epilogue.cu.in", "sum_epilogue_", "sum and epilogue", std::move(values), p, device);
}

KernelSource generate_one_shot(const NormalProblem& p, int elements, const DeviceInfo& device) {
  TemplateValues values = one_shot_files();
  values.insert({"elements", std::to_string(elements)});
  return generate_of_sums("one_shot.cu.in", "one_shot_", "one-shot all-reduce", std::move(values), p, device);
}

bool is_current(const KernelSource& source) {
  if (source.entry.starts_with("begin_call")) return may_give("begin_call.cu.in", begin_call_files(), source.text);
  if (source.entry.starts_with("sum_epilogue_"))
    return may_give("sum_epilogue.cu.in", sum_epilogue_files(), source.text);
  if (source.entry.starts_with("one_shot_")) return may_give("one_shot.cu.in", one_shot_files(), source.text);
  if (source.entry.starts_with("check_")) return may_give("check.cu.in", check_files(), source.text);
  if (source.entry.starts_with("pack_")) return may_give("pack.cu.in", packing_files(), source.text);
  for (const KernelFamily* family : kernel_families) {
    for (const DataType a : {f16, f32, f64}) {
      if (may_give("gemm.cu.in", gemm_files(family->template_files(a)), source.text)) return true;
    }
  }
  return false;
}

}  // namespace jitgemm
