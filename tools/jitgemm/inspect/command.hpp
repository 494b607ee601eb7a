#pragma once

namespace CLI {
class App;
}

namespace jitgemm::cli {

// Each adds the subcommand of its name.
void add_explain(CLI::App& app);
void add_source(CLI::App& app);
void add_devices(CLI::App& app);

}  // namespace jitgemm::cli
