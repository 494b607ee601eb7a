#include "command/command_line.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string_view>
#include <vector>

#include "bench/command.hpp"
#include "cache/command.hpp"
#include "common/exit_status.hpp"
#include "inspect/command.hpp"
#include "jitgemm/jitgemm.hpp"
#include "parallel/command.hpp"
#include "run/command.hpp"
#include "seed/command.hpp"
#include "soak/command.hpp"
#include "tuning/command.hpp"
#include "tuning/workers.hpp"
#include "warm/command.hpp"
#include "wisdom/command.hpp"

namespace jitgemm::cli {
namespace {

constexpr const char* examples = R"(
Examples:
  jitgemm run                                        tune, compile, run and check one GEMM
  jitgemm run -m 1536 -n 1792 -k 6016 --type bf16
  jitgemm explain -m 1536 -n 1792 -k 6016            what would run, and why
  jitgemm source -m 512 -n 512 -k 512 --arch sm_90a  the kernel that would run; needs no GPU
  jitgemm warm --shapes shapes.txt --arch sm_90a     compile ahead; needs no GPU
  jitgemm bench --shapes shapes.txt --csv out.csv    against cuBLAS
  jitgemm parallel bench --gpus 2                    across GPUs, against cuBLAS and NCCL
  jitgemm seed squares                               Triton's tutorial and a Stream-K notebook, repeated
  jitgemm cache ls                                   what is compiled already
  jitgemm cache export /opt/jitgemm                  kernels for an image that sets JITGEMM_SYSTEM_CACHE_DIR to it
  jitgemm wisdom export h200.wisdom                  what is tuned and compiled, for other machines
Environment: JITGEMM_CACHE_DIR, JITGEMM_SYSTEM_CACHE_DIR, JITGEMM_CACHE_MAX_BYTES, JITGEMM_TUNING, JITGEMM_LOG
)";

/// Insertions, deletions, replacements and swaps of neighbours that make one of the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

/// ": did you mean tune?", if the word is nearly one of the names.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  std::size_t least = word.size() / 3 + 2;
  std::string nearest;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(word, name);
    if (distance < least && distance < name.size()) {
      least = distance;
      nearest = name;
    }
  }
  return nearest.empty() ? "" : ": did you mean " + nearest + "?";
}

std::vector<std::string> names_of_subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) names.push_back(command->get_name());
  return names;
}

/// "-m", "--layout"
std::vector<std::string> names_of_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// What is wrong with the words that nothing is known of, if that is what is wrong.
std::string unknown_word(const CLI::App& app) {
  const CLI::App* command = &app;
  std::string name = "jitgemm";
  std::vector<std::string> options = names_of_options(app);
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
    for (std::string& known : names_of_options(*command)) options.push_back(std::move(known));
  }
  const std::vector<std::string> words = app.remaining(true);
  const auto is_option = [](const std::string& word) { return word.size() > 1 && word.starts_with('-'); };
  const std::vector<std::string> subcommands = names_of_subcommands(*command);
  const auto word = std::find_if_not(words.begin(), words.end(), is_option);
  if (!subcommands.empty() && word != words.end())
    return fmt::format("{} has no command \"{}\"{}; `{} --help` lists them", name, *word,
                       did_you_mean(*word, subcommands), name);
  const auto option = std::find_if(words.begin(), words.end(), is_option);
  if (option == words.end()) return "";
  return fmt::format("{} has no option {}{}; `{} --help` lists them", name, *option,
                     did_you_mean(option->substr(0, option->find('=')), options), name);
}

/// Takes no empty text for an option, which would count as not given: what a script's unset variable names would be the
/// default, as the user's own cache for `cache clear --cache-dir ""`. Words without an option are their command's.
void refuse_empty_texts(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->nonpositional() && option->get_items_expected_max() > 0)
      option->check([](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); }, "", "");
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) refuse_empty_texts(*command);
}

/// Whether something that was printed did not arrive.
bool output_is_lost() {
  const bool cout_failed = !std::cout.flush();
  return std::fflush(stdout) != 0 || std::ferror(stdout) || cout_failed;
}

int fail(const std::string& message, const std::string& log = {}) {
  std::fflush(stdout);
  std::string text = fmt::format("jitgemm: error: {}\n", message) + log;
  if (text.back() != '\n') text += '\n';
  std::fputs(text.c_str(), stderr);  // fmt::print would throw where standard error is lost too
  return 1;
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  CLI::App app("GEMM kernels written, compiled and picked at run time", "jitgemm");
  app.set_version_flag("--version", "jitgemm " JITGEMM_VERSION);
  app.footer(examples);
  app.require_subcommand(1);
  app.failure_message([&app](const CLI::App*, const CLI::Error& error) {
    const std::string unknown = unknown_word(app);
    return unknown.empty()
               ? fmt::format("jitgemm: error: {}; `jitgemm COMMAND --help` lists the options\n", error.what())
               : fmt::format("jitgemm: error: {}\n", unknown);
  });
  add_run(app);
  add_bench(app);
  add_seed(app);
  add_tune(app);
  add_tune_worker(app);
  add_explain(app);
  add_source(app);
  add_warm(app);
  add_parallel(app);
  add_soak(app);
  add_cache(app);
  add_wisdom(app);
  add_devices(app);
  refuse_empty_texts(app);

  const auto end = [](int status) {
    return output_is_lost() && status == 0 ? fail("cannot write to standard output") : status;
  };
  try {
    app.parse(argc, argv);
    return end(0);
  } catch (const CLI::ParseError& error) {
    return end(app.exit(error) == 0 ? 0 : 2);
  } catch (const ExitStatus& status) {
    if (!status.error.empty()) fail(status.error);
    return end(status.value);
  } catch (const Error& error) {
    return fail(error.what(), error.log());
  } catch (const std::bad_alloc&) {
    throw;  // main() has words that need no memory
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

}  // namespace jitgemm::cli
