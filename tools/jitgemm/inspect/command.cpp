// explain, source and devices: what would run, without running it.
#include "inspect/command.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/options.hpp"
#include "common/text.hpp"
#include "inspect/disassemble.hpp"
#include "inspect/ptx.hpp"

namespace jitgemm::cli {
namespace {

struct ExplainOptions {
  ProblemOptions problem;
  DeviceOptions device;
  int candidates = 4;
  bool no_compile = false, json = false;
};

/// Fills in what only the compiled kernel knows. Without a compiler, and without the kernel in the cache, it stays
/// unknown.
void add_facts_of_kernel(Context& context, const Problem& problem, Plan& plan) {
  try {
    const Plan compiled = context.compile(problem, plan.config);
    plan.registers = compiled.registers;
    plan.spill_bytes = compiled.spill_bytes;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_compiler) throw;
    fmt::print(stderr, "jitgemm: registers and spills are unknown: {}\n", error.what());
  }
}

void explain(const ExplainOptions& options) {
  const ContextOptions context_options = options.device.context_options(true);
  Context context(context_options);
  const Problem problem = options.problem.problem();
  const std::optional<KernelConfig> config = options.problem.config();
  Plan plan = config ? context.plan(problem, *config) : context.plan(problem);
  options.device.announce_emulator(context_options, true);
  if (!options.no_compile) add_facts_of_kernel(context, problem, plan);
  std::vector<Plan> candidates;
  if (options.candidates > 0) candidates = context.candidates(problem);
  const std::size_t shown = std::min(candidates.size(), std::size_t(options.candidates));

  if (options.json) {
    nlohmann::ordered_json json = to_json(plan);
    for (std::size_t i = 0; i < shown; ++i) json["candidates"].push_back(to_json(candidates[i]));
    print_json(json);
    return;
  }
  const std::string text = plan.explain();
  fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
  if (shown == 0) return;
  fmt::print("\nThe cost model's first {} of {} legal configurations:\n{:>12}  config\n", shown, candidates.size(),
             "predicted us");
  for (std::size_t i = 0; i < shown; ++i) {
    fmt::print("{:12.2f}  {}\n", candidates[i].predicted.us, to_string(candidates[i].config));
  }
}

struct SourceOptions {
  ProblemOptions problem;
  DeviceOptions device;
  std::string format = "cuda", kernel = "gemm";
};

/// By its name.
const KernelText& kernel_of(const std::vector<KernelText>& call, const std::string& name) {
  const auto found = std::ranges::find(call, name, &KernelText::name);
  if (found == call.end()) {
    throw Error(ErrorCode::invalid_option,
                "this configuration packs no operand: leave --kernel out, or give a --config with pack=ab");
  }
  return *found;
}

void source(const SourceOptions& options) {
  const ContextOptions context_options = options.device.context_options(true);
  if (options.format == "sass" && context_options.device == Device::emulator) {
    throw Error(ErrorCode::invalid_option, "the emulator has no SASS: add --device compile_only --arch sm_90a");
  }
  Context context(context_options);
  const Problem problem = options.problem.problem();
  const KernelConfig config = options.problem.config() ? *options.problem.config() : context.plan(problem).config;
  const std::vector<KernelText> sources = context.sources(problem, config);
  const KernelText& kernel = kernel_of(sources, options.kernel);
  options.device.announce_emulator(context_options, true);
  std::string text = kernel.text;
  if (options.format == "sass") {
    text = disassemble(kernel_of(context.binaries(problem, config), options.kernel).text);
  } else if (options.format == "ptx") {
    text = ptx_of(kernel, context.device().architecture, config);
  }
  fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
}

void devices(bool json) {
  std::vector<DeviceDescription> all = cuda_devices();
  const bool gpu = !all.empty();
  all.push_back(Context(ContextOptions{.device = Device::emulator}).device());
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const DeviceDescription& device : all) list.push_back(to_json(device));
    print_json(list);
    return;
  }
  for (const DeviceDescription& device : all) {
    fmt::print("{:<9} {:<32} {:<8} {:>4} SMs  {:>9} of shared memory a block  {}\n",
               device.emulated ? "emulator" : "cuda", device.name, device.architecture, device.sm_count,
               bytes_text(double(device.smem_bytes_per_block)),
               device.memory_bytes ? bytes_text(double(device.memory_bytes)) : "");
  }
  if (!gpu) fmt::print("no GPU found: commands run on the emulator, where times mean nothing\n");
}

}  // namespace

void add_explain(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "Say what would run for a problem, and why");
  options->problem.add_to(*command);
  options->device.add_to(*command);
  options->device.add_tuning_to(*command);
  command->add_option("--candidates", options->candidates, "List this many of the cost model's first choices [4]")
      ->check(number_from_0());
  command->add_flag("--no-compile", options->no_compile, "Leave the kernel, and so registers and spills, alone");
  command->add_flag("--json", options->json, "For machines");
  command->footer(R"(
Examples:
  jitgemm explain -m 1536 -n 1792 -k 6016
  jitgemm explain -m 1536 -n 1792 -k 6016 --arch sm_90a --candidates 10    needs no GPU
Where there is no compiler, registers and spills stay unknown.
)");
  command->callback([options] { explain(*options); });
}

void add_source(CLI::App& app) {
  auto options = std::make_shared<SourceOptions>();
  CLI::App* command = app.add_subcommand("source", "Print the kernel that would run");
  options->problem.add_to(*command);
  options->device.add_to(*command);
  options->device.add_tuning_to(*command);
  command->add_option("--format", options->format, "cuda, ptx, or sass (needs nvdisasm or cuobjdump on PATH)")
      ->check(CLI::IsMember({"cuda", "ptx", "sass"}))
      ->capture_default_str();
  command->add_option("--kernel", options->kernel, "gemm, or packing: the one that copies unaligned operands before it")
      ->check(CLI::IsMember({"gemm", "packing"}))
      ->capture_default_str();
  command->footer(R"(
Examples:
  jitgemm source -m 512 -n 512 -k 512 > gemm.cu
  jitgemm source -m 500 -n 501 -k 503 --kernel packing
  jitgemm source -m 512 -n 512 -k 512 --arch sm_90a --format ptx    needs no GPU
)");
  command->callback([options] { source(*options); });
}

void add_devices(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("devices", "List the GPUs, and the emulator");
  command->add_flag("--json", *json, "For machines");
  command->footer(R"(
Examples:
  jitgemm devices
  jitgemm devices --json    for machines: all that choices look at
)");
  command->callback([json] { devices(*json); });
}

}  // namespace jitgemm::cli
