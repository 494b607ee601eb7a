#include "seed/command.hpp"

#include <CLI/CLI.hpp>

#include "seed/seed.hpp"

namespace jitgemm::cli {
namespace {

using Command = CLI::App;

constexpr const char* how_timed =
    "\nTimes are taken as `jitgemm bench` takes them. On the emulator nothing is timed, and sizes are "
    "small.\nExamples:\n";
constexpr const char* squares_examples =
    "  jitgemm seed squares --csv squares.csv --json squares.json --triton-manifest peer/manifest.json\n";
constexpr const char* singles_examples = "  jitgemm seed singles --json singles.json\n";
constexpr const char* sweep_examples = "  jitgemm seed sweep --first 100 --json sweep.json\n";
constexpr const char* checks_examples = "  jitgemm seed checks\n";

void add_common(Command& command, SeedOptions& options) {
  command.add_option("--json", options.json, "Write the results to this file");
  command.add_flag("--peers,!--no-peers", options.peers, "Beside cuBLAS, where the build has it [on]");
  options.device.add_to(command);
}

void add_choice(Command& command, SeedOptions& options) {
  command.add_flag("--frozen", options.frozen, "Our choice is what the tuning database says: measure nothing anew");
  command.add_option("--tune-seconds", options.tune_seconds, "Of measuring for one new problem")
      ->check(positive_number())
      ->capture_default_str();
}

void add_types(Command& command, SeedOptions& options) {
  options.types = {"f16", "e5m2"};
  command.add_option("--type", options.types, "f16: A and B row-major; e5m2: B column-major; D is f16")
      ->check(CLI::IsMember({"f16", "e5m2"}))
      ->capture_default_str();
}

void add_tile(Command& command, SeedOptions& options) {
  command.add_option(
      "--tile", options.tile,
      "A configuration whose tile to use with the notebook's schedules [sm80 128x128x32 group_m=8 stages=4 "
      "warps=4]");
}

}  // namespace

void add_seed(CLI::App& app) {
  CLI::App* seed = app.add_subcommand("seed", "Repeat the experiments of Triton's tutorial and of a Stream-K notebook");
  seed->require_subcommand(1);
  seed->footer(std::string(how_timed) + checks_examples + squares_examples + singles_examples + sweep_examples);
  const auto add = [seed](const char* name, const char* help, const char* examples, void (*run)(const SeedOptions&)) {
    CLI::App* command = seed->add_subcommand(name, help);
    auto options = std::make_shared<SeedOptions>();
    command->footer(std::string(how_timed) + examples);
    add_common(*command, *options);
    command->callback([options, run] { run(*options); });
    return std::pair<CLI::App&, SeedOptions&>(*command, *options);
  };
  {
    auto [command, options] =
        add("squares", "The tutorial's benchmark: M = N = K = 256, 384, ... 4096", squares_examples, seed_squares);
    add_types(command, options);
    add_choice(command, options);
    command.add_option("--activation", options.activation, "Fused: none or leaky_relu")
        ->check(CLI::IsMember({"none", "leaky_relu"}))
        ->capture_default_str();
    command.add_option("--sizes", options.sizes, "Other sizes")->check(positive_number());
    command.add_option("--csv", options.csv, "Write a line a size and provider to this file");
    command.add_option("--triton-manifest", options.triton_manifest,
                       "Beside the tutorial's kernel, which tools/triton_peer/compile.py compiled");
  }
  {
    auto [command, options] =
        add("singles", "The notebook's single cases, with its debug print: grids of 1 and 2 programs an SM, and 0",
            singles_examples, seed_singles);
    add_choice(command, options);
    add_tile(command, options);
  }
  {
    auto [command, options] = add("sweep", "The notebook's sweep: up to 26 grids a shape", sweep_examples, seed_sweep);
    add_choice(command, options);
    add_tile(command, options);
    command.add_option("--shapes", options.shapes, "A file of `m n k` lines")->capture_default_str();
    command.add_option("--first", options.first, "Only so many shapes of the file")->check(positive_number());
    command.add_option("--seconds", options.seconds, "Begin no shape after this time")->check(positive_number());
    command.add_flag("--resume", options.resume, "Keep what is in the JSON file and go on from there");
    command.add_flag("--tuned", options.tuned, "Time our own choice too");
  }
  {
    auto [command, options] = add("checks", "The tutorial's checks: 512 x 512 x 512", checks_examples, seed_checks);
    add_types(command, options);
    command.add_option("--sizes", options.sizes, "Other sizes")->check(positive_number());
  }
}

}  // namespace jitgemm::cli
