// soak: the library under load from many threads.
#include "soak/command.hpp"

#include <CLI/CLI.hpp>
#include <memory>

#include "soak/sharing.hpp"
#include "soak/soak.hpp"

namespace jitgemm::cli {

void add_soak(CLI::App& app) {
  auto options = std::make_shared<SoakOptions>();
  CLI::App* command = app.add_subcommand("soak", "Call for long from many threads, with everything drawn at random");
  command->add_option("--minutes", options->minutes, "To run, warm-up aside")->check(positive_number());
  command->add_option("--seconds", options->seconds, "The same; both add up [60]")->check(positive_number());
  command->add_option("--threads", options->threads, "Of one Context")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--check-every", options->check_every, "Draws of a thread from one check to the next")
      ->check(positive_number())
      ->capture_default_str();
  command
      ->add_option("--patterns", options->patterns, "Types, layouts, epilogues and configurations that are drawn from")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--max-size", options->max_size, "Of m, n and k, rounded up to 16 [2048; on the emulator 64]")
      ->check(CLI::Range(1, 1 << 15));
  command
      ->add_option("--sharing", options->sharing,
                   "What threads share: any of nothing, stream, default-stream, thread-default (the per-thread default "
                   "stream), workspace (a caller's, on one stream) and capture (of one graph) [all; a call draws one]")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(sharing_names.begin(), sharing_names.end())));
  command->add_option("--seed", options->seed, "Of all that is drawn [a new one, which is printed]")
      ->check(number_of_64_bits());
  options->device.add_to(*command);
  options->device.add_tuning_to(*command);
  command->add_flag("--json", options->json, "For machines");
  command->footer(R"(
Results are compared with a float64 reference. A pattern has its own configuration or, one in four, the library's
choice (--tuning off unless told otherwise) for a few sizes; all other sizes are drawn. On a GPU, what is drawn is called
once or several times in a row.
Examples:
  jitgemm soak --minutes 10
  jitgemm soak --sharing stream,workspace --check-every 100
  jitgemm soak --device emulator --seconds 20 --threads 2 --patterns 10 --check-every 10
)");
  command->callback([options] {
    options->max_size = (options->max_size + 15) / 16 * 16;
    soak(*options);
  });
}

}  // namespace jitgemm::cli
