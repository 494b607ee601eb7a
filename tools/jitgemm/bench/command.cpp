// bench: our times against those of cuBLAS, cuBLASLt and Triton's tutorial, shape by shape.
#include "bench/command.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "bench/options.hpp"
#include "core/enumerators.hpp"

namespace jitgemm::cli {
namespace {

std::string why_no_main_loop(const std::string& name) {
  return parse_enumerator<MainLoop>(name) ? std::string() : name + " is not " + names_of_all<MainLoop>();
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Time ours against cuBLAS and cuBLASLt over a file of shapes");
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command->add_option(name, value, help);
  };
  add("--shapes", options->shapes, "A file of `m n k` lines")->required();
  options->problem.add_to(*command, ProblemOptions::Scope::without_sizes);
  command->add_flag("--model", options->model, "Time the cost model's choice")->group("Arms (all if none is named)");
  command->add_flag("--tuned", options->tuned, "Time the tuned choice")->group("Arms (all if none is named)");
  command->add_flag("--best", options->best, "Time the best that tuning measured")
      ->group("Arms (all if none is named)");
  add("--config", options->configs, "Time this configuration; may be repeated")->group("Arms (all if none is named)");
  command
      ->add_flag("--peers,!--no-peers", options->peers,
                 "Time cuBLAS and the best of 16 cuBLASLt candidates, where the build has them [on]")
      ->group("Arms (all if none is named)");
  add("--kernels", options->kernels,
      "Time the kernels of this list, which `jitgemm wisdom cover --list` wrote: of each, the two configurations that "
      "are predicted to be best")
      ->group("Arms (all if none is named)");
  add("--triton-manifest", options->triton_manifest,
      "Time the Triton tutorial's kernels of this manifest, which tools/triton_peer/compile.py wrote")
      ->group("Arms (all if none is named)");
  add("--first", options->draw.first, "Time as many of the cost model's first candidates")
      ->check(number_from_0())
      ->group("Arms (all if none is named)");
  add("--random", options->draw.random, "Time as many candidates drawn at random")
      ->check(number_from_0())
      ->group("Arms (all if none is named)");
  add("--ablate", options->draw.ablate,
      "Time, for each feature of the kernels, as many of the first candidates that do without it")
      ->check(number_from_0())
      ->group("Arms (all if none is named)");
  add("--seed", options->draw.seed, "Of --random")->check(number_of_64_bits())->capture_default_str();
  command
      ->add_flag("--derived", options->derived,
                 "Time the cost model's choice with rates derived from the device's attributes")
      ->group("Arms (all if none is named)");
  add("--choice", options->choices,
      "NAME=DIR: time what is chosen with this cache directory's tuning database and calibration; may be repeated")
      ->group("Arms (all if none is named)");
  command
      ->add_flag("--without-early", options->without_early,
                 "Time the tuned choice, else the model's, without early launch, as the arm serial")
      ->group("Arms (all if none is named)");
  command->add_flag("--invariant", options->invariant, "Time the batch-invariant choice")
      ->group("Arms (all if none is named)");
  add("--at-hand", options->at_hand,
      "Time the choice among kernels that are at hand where that costs at most this factor, as the arm at_hand")
      ->check(positive_number())
      ->group("Arms (all if none is named)");
  add("--repeats", options->repeats, "Time the tuned choice, else the model's, as many times more: the noise floor")
      ->check(number_from_0())
      ->group("Arms (all if none is named)");
  add("--finalists", options->finalists,
      "Time the so many fastest again, and what is not drawn: the least of many times is one that no arm has. They are "
      "in the column `others`, too")
      ->check(number_from_0())
      ->group("Arms (all if none is named)");
  add("--protocol", options->protocol,
      "rep: launches of one arm back to back; mix: a kernel of someone else's between any two, its own time taken off; "
      "both [both; rep on the emulator, which times nothing]")
      ->check(CLI::IsMember({"rep", "mix", "both"}));
  add("--neighbour", options->neighbour,
      "Of mix: small, one block an SM; or large, some 20 us of three waves of blocks that fill the shared memory "
      "[small]")
      ->check(CLI::IsMember({"small", "large"}));
  command->add_flag(
      "--eager", options->eager,
      "Put the launches on a stream behind a kernel that waits for the host, instead of replaying a graph");
  command->add_flag(
      "--scales", options->scales,
      "Of e4m3 and e5m2: both sides get single scales of A and B in device memory; --scaling has vectors");
  add("--built-in", options->built_in,
      "With --epilogue: what says the same, \"bias=along_n activation=gelu_erf\"; time it by the same choice, too, as "
      "the "
      "arm built_in");
  add("--distribution", options->distribution,
      "With --groups or --grouping, how rows, or k, come to groups: equal, uniform (by chance; the default) or zipf")
      ->check(CLI::IsMember({"equal", "uniform", "zipf"}));
  add("--main-loop", options->main_loop,
      "Only configurations of this one, " + names_of_all<MainLoop>() + "; tuned is then the best of 16")
      ->check(why_no_main_loop);
  command->add_flag("--frozen", options->frozen,
                    "The tuned choice is what the tuning database says: measure nothing anew");
  add("--tuned-as", options->tuned_as,
      "The tuned choice is that of the same shape in this CSV file of an earlier run, whatever the database says")
      ->check(CLI::ExistingFile);
  add("--seconds-per-shape", options->seconds_per_shape,
      "About; large shapes take longer, new kernels add their compile time")
      ->check(positive_number())
      ->capture_default_str();
  add("--tune-seconds", options->tune_seconds, "Of that, for tuning [0.45 of it]")->check(positive_number());
  add("--csv", options->csv, "Write a line a shape to this file as they come");
  add("--json", options->json, "Write everything to this file at the end");
  command->add_flag("--resume", options->resume, "Keep what is in the CSV file and go on from there");
  options->device.add_to(*command);
  options->device.add_constraints_to(*command);
  command->footer(R"(
Each arm runs as a CUDA graph of launches over inputs that do not fit the L2, in turn with the others, in rounds whose order is
drawn; medians and their spread, (p80 - p20) / median of the rounds, are given, in microseconds of one launch. The best candidate of
cuBLASLt is found by a measurement of its own, as ours is. Each shape has a line for each protocol; both are timed in the same
rounds. Both sides have the same accumulator and 64 MiB of workspace.
Ratios above 1 mean that ours is faster. floor = max(flops / what the tensor cores of an H200 sustain, for f16 800 TFLOP/s,
bytes / 4.2 TB/s) + 2 us. With --epilogue there is an arm plain, too: the product alone, by the same choice. What cublasGemmEx cannot compute is timed with cuBLASLt's first candidate instead of its default;
what cuBLASLt cannot compute either, without them.
Examples:
  jitgemm bench --shapes shapes.txt --type bf16 --layout nt --csv out.csv --json out.json
  jitgemm bench --shapes shapes.txt --type e5m2 --b e4m3 --layout nt --bias --activation gelu_tanh
  jitgemm bench --shapes shapes.txt --csv out.csv --resume
  jitgemm bench --shapes shapes.txt --type bf16 --tuned --epilogue tools/examples/epilogues/residual.txt --built-in "beta=1"
  jitgemm bench --shapes shapes.txt --model --tuned --peers --tuned-as old.csv --csv out.csv
  jitgemm bench --shapes shapes.txt --main-loop sm80 --no-peers
  jitgemm bench --shapes shapes.txt --frozen --tuned --without-early --protocol mix --neighbour large
)");
  command->callback([options] {
    if (!options->kernels.empty()) options->draw.kernels = read_kernel_list(options->kernels);
    bench(*options);
  });
}

}  // namespace jitgemm::cli
