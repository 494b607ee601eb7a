#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace jitgemm::cli {

// Each adds one subcommand, whose callback does the work and throws Error.
void add_run(CLI::App& app);
void add_bench(CLI::App& app);
void add_seed(CLI::App& app);
void add_tune(CLI::App& app);
void add_tune_worker(CLI::App& app);
void add_explain(CLI::App& app);
void add_source(CLI::App& app);
void add_warm(CLI::App& app);
void add_soak(CLI::App& app);
void add_cache(CLI::App& app);
void add_wisdom(CLI::App& app);
void add_devices(CLI::App& app);

/// Thrown by a command whose status means more than failure.
struct ExitStatus {
  int value;
  std::string error;  ///< empty: there is none
};

}  // namespace jitgemm::cli
