// parallel: products across the GPUs of one host.
#include "parallel/command.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/options.hpp"
#include "parallel/rank.hpp"

namespace jitgemm::cli {
namespace {

constexpr const char* rank_name = "parallel-rank";

constexpr const char* examples = R"(
Examples:
  jitgemm parallel bench --gpus 2
)";

void add_bench(CLI::App& parallel) {
  auto options = std::make_shared<ParallelBenchOptions>();
  CLI::App* command =
      parallel.add_subcommand("bench", "Time ours against cuBLAS and NCCL, on Llama's layers or others");
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command->add_option(name, value, help);
  };
  add("--gpus", options->gpus, "One process each: all, a count such as 2, or a list such as 0,2")
      ->capture_default_str();
  add("--shapes", options->shapes,
      "A file of `exchange m n k` lines, with n and k of the whole layer: all_gather_a divides n among the ranks, "
      "reduce_scatter_d and all_reduce_d divide k [layers of Llama-70B and -405B]");
  add("--type", options->type, "Of A and B, which is column-major; D is the same, of e4m3 bf16")
      ->check(CLI::IsMember({"f16", "bf16", "tf32", "f32", "e4m3"}))
      ->capture_default_str();
  add("--arms", options->arms,
      "Any of cublas_nccl, ours_nccl (Overlap::none), ours, and a rank's product alone: cublas_alone, ours_alone "
      "[all]")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(parallel_arm::all.begin(), parallel_arm::all.end())));
  add("--samples", options->samples, "Of each arm, at least")->check(CLI::Range(1, 1000))->capture_default_str();
  add("--seconds", options->seconds, "Of each shape, in which there are more of them")
      ->check(positive_number())
      ->capture_default_str();
  add("--csv", options->csv, "Write a line a shape to this file as they come");
  options->device.add_to(*command);
  options->device.add_tuning_to(*command);
  command->footer(R"(
Arms take turns in an order that is drawn and the same on all ranks. For each sample the ranks meet on their streams, behind a kernel
that empties the L2 and before a wait that hides the host's delays; then an arm runs, a CUDA graph where it may be captured.
The slowest rank's time counts, between two events; medians are given, and in the CSV file (p80 - p20) / median. Before, rows of
each arm's D are compared with those of cuBLAS and NCCL on every rank. With --tuning on, ours is what
all ranks together have measured to be the fastest, which the tuning database keeps. ratio = cublas_nccl / ours; hidden = (ours_nccl - ours) /
(ours_nccl - ours_alone), the share of the communication. NCCL does without NVLink multicast.
Examples:
  jitgemm parallel bench --gpus 2
  jitgemm parallel bench --gpus 4 --shapes layers.txt --csv layers.csv
  jitgemm parallel bench --gpus 0,1 --arms cublas_nccl,ours --type e4m3
)");
  command->callback([options] { parallel_bench(*options); });
}

void add_rank(CLI::App& app) {
  auto options = std::make_shared<DeviceOptions>();
  auto parent = std::make_shared<pid_t>(0);
  CLI::App* command = app.add_subcommand(rank_name, "What `parallel bench` runs on each GPU");
  command->group("");  // not in the list
  options->add_to(*command);
  options->add_tuning_to(*command);
  command->add_option(parent_option, *parent, "The process that this one ends with")->required();
  command->callback([options, parent] {
    ParentProcess process(*parent);
    run_rank(process, options->context_options());
  });
}

}  // namespace

void add_parallel(CLI::App& app) {
  CLI::App* parallel = app.add_subcommand("parallel", "Products across the GPUs of one host (tensor parallelism)");
  parallel->require_subcommand(1);
  parallel->footer(examples);
  add_bench(*parallel);
  add_rank(app);
}

ChildCommand rank_command(const ContextOptions& options) {
  std::vector<std::string> words{"jitgemm", rank_name, parent_option, std::to_string(::getpid())};
  for (const std::string& word : words_of(options)) words.push_back(word);
  std::vector<std::string> environment{"NCCL_NVLS_ENABLE=0"};  // not every machine has multicast, and ours does without
  if (options.tuning)
    environment.push_back(std::string("JITGEMM_TUNING=") +
                          std::array{"off", "cached", "on"}[std::size_t(*options.tuning)]);
  return {.words = std::move(words), .environment = std::move(environment)};
}

}  // namespace jitgemm::cli
