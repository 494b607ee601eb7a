#include "command_line.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "commands.hpp"
#include "jitgemm/jitgemm.hpp"

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
  jitgemm seed squares                               Triton's tutorial and a Stream-K notebook, repeated
  jitgemm cache ls                                   what is compiled already
  jitgemm wisdom export h200.wisdom                  what is tuned and compiled, for other machines
Environment: JITGEMM_CACHE_DIR, JITGEMM_SYSTEM_CACHE_DIR, JITGEMM_CACHE_MAX_BYTES, JITGEMM_TUNING, JITGEMM_LOG
)";

int fail(const std::string& message, const std::string& log = {}) {
  std::fflush(stdout);
  fmt::print(stderr, "jitgemm: error: {}\n", message);
  if (!log.empty()) fmt::print(stderr, "{}{}", log, log.back() == '\n' ? "" : "\n");
  return 1;
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  CLI::App app("GEMM kernels written, compiled and picked at run time", "jitgemm");
  app.set_version_flag("--version", "jitgemm " JITGEMM_VERSION);
  app.footer(examples);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("jitgemm: error: {}; `jitgemm COMMAND --help` lists the options\n", error.what());
  });
  add_run(app);
  add_bench(app);
  add_seed(app);
  add_tune(app);
  add_tune_worker(app);
  add_explain(app);
  add_source(app);
  add_warm(app);
  add_soak(app);
  add_cache(app);
  add_wisdom(app);
  add_devices(app);

  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0) return fail("cannot write to standard output");
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const ExitStatus& status) {
    if (!status.error.empty()) fail(status.error);
    return std::fflush(stdout) == 0 ? status.value : fail("cannot write to standard output");
  } catch (const Error& error) {
    return fail(error.what(), error.log());
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

}  // namespace jitgemm::cli
