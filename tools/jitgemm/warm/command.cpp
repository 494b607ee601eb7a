// warm: kernels compiled ahead.
#include "warm/command.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "common/options.hpp"
#include "common/parallel.hpp"
#include "common/progress.hpp"
#include "common/text.hpp"
#include "context_options.hpp"
#include "core/problem.hpp"
#include "jit/cache_directory.hpp"
#include "warm/list.hpp"

namespace jitgemm::cli {
namespace {

struct Options {
  ProblemOptions problem;
  DeviceOptions device;
  std::string shapes, configs;
  int candidates = 0, jobs = 0;
  std::optional<int> kernels;
  bool json = false;
};

/// Throws Error if the directory has not taken them all.
void report_warm(const Context& context, const std::filesystem::path& directory, std::size_t count,
                 const std::string& unit, bool json) {
  const Counters counters = context.counters();
  if (counters.unkept > 0) {
    const std::string why = why_not_writable(directory);
    throw Error(
        ErrorCode::io,
        fmt::format("{} of {} compiled, but not kept in {}: {}; name a directory that takes them with --cache-dir "
                    "or JITGEMM_CACHE_DIR",
                    counters.unkept, counted(counters.compiles, "kernel"), directory.string(),
                    why.empty() ? "JITGEMM_LOG=warn says why" : why));
  }
  const DeviceDescription device = context.device();
  if (json) {
    print_json({{unit + "s", count},
                {"architecture", device.architecture},
                {"compiles", counters.compiles},
                {"disk_hits", counters.disk_hits}});
    return;
  }
  fmt::print("{} warm for {}: {} compiled, {} from the cache\n", counted(count, unit),
             device.emulated ? "the emulator" : device.architecture, counted(counters.compiles, "kernel"),
             counters.disk_hits);
}

void warm(const Options& options) {
  const ContextOptions context_options = options.device.context_options(true);
  const std::filesystem::path directory = home_of(context_options);
  Context context(context_options);
  if (!options.configs.empty()) {
    if (!options.shapes.empty() || options.problem.sizes_given()) {
      throw Error(ErrorCode::invalid_option, "--configs says which problems: leave --shapes, -m, -n and -k out");
    }
    options.device.announce_emulator(context_options, true);
    return report_warm(context, directory, warm_list(context, options.configs, options.jobs), "configuration",
                       options.json);
  }
  const bool no_sizes = options.shapes.empty() && !options.problem.sizes_given() && !options.problem.config();
  if (no_sizes && context.device().architecture == "sm_90a" && !context.device().emulated) {
    return report_warm(context, directory,
                       warm_few(context, options.problem, std::size_t(options.kernels.value_or(24)), options.jobs),
                       "configuration", options.json);
  }
  if (options.kernels) {
    throw Error(ErrorCode::invalid_option,
                "--kernels is of the list for sm_90a, which is warmed without sizes: leave sizes and --shapes out, and "
                "name that device with --arch, or leave --kernels out");
  }
  const std::vector<Problem> problems = problems_of(options.problem, options.shapes);
  const std::optional<KernelConfig> config = options.problem.config();
  for (const Problem& problem : problems) normalise(problem);  // refuses what makes no sense
  options.device.announce_emulator(context_options, true);
  Progress progress("warming");
  parallel_for(
      int(problems.size()), options.jobs,
      [&](int i) {
        const Problem& problem = problems[std::size_t(i)];
        if (config)
          context.compile(problem, *config);
        else
          context.warm(problem);
        if (options.candidates == 0) return;
        const std::vector<Plan> plans = context.candidates(problem);
        for (std::size_t c = 0; c < std::min(plans.size(), std::size_t(options.candidates)); ++c) {
          context.compile(problem, plans[c].config);
        }
      },
      [&](int done) { progress.update(done, int(problems.size())); });
  progress.hide();
  report_warm(context, directory, problems.size(), "problem", options.json);
}

}  // namespace

void add_warm(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("warm", "Compile ahead, into the cache, what gemm() would run");
  options->problem.add_to(*command);
  options->device.add_to(*command);
  options->device.add_tuning_to(*command);
  command->add_option("--shapes", options->shapes, "A file of `m n k` lines")->group("Problem");
  command
      ->add_option("--configs", options->configs,
                   "Instead what `jitgemm wisdom cover --list` wrote: a `problem; configuration` a line")
      ->group("Problem");
  command
      ->add_option("--candidates", options->candidates,
                   "Also the cost model's first so many, so that tuning compiles nothing")
      ->check(number_from_0());
  command
      ->add_option("--kernels", options->kernels,
                   "Without sizes: so many of a list of 48 for aligned problems, squares and decoding, best 24 or all "
                   "[24]")
      ->check(positive_number());
  command->add_option("--jobs", options->jobs, "Kernels compiled at once [one a processor]")->check(number_from_0());
  command->add_flag("--json", options->json, "For machines");
  command->footer(R"(
Examples:
  jitgemm warm --arch sm_90a                        24 kernels for aligned f16 problems, for --at-hand-within
  jitgemm warm --arch sm_90a --type bf16 --layout nt    these configurations for other types and layouts
  jitgemm warm -m 4096 -n 4096 -k 4096
  jitgemm warm --shapes shapes.txt --arch sm_90a    needs no GPU, e.g. while an image is built
What is warm is this user's. `jitgemm cache export /opt/jitgemm` copies it for all users of an image, which then sets
JITGEMM_SYSTEM_CACHE_DIR to it.
)");
  command->callback([options] { warm(*options); });
}

}  // namespace jitgemm::cli
