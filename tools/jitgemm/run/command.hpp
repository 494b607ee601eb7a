#pragma once

namespace CLI {
class App;
}

namespace jitgemm::cli {

/// Adds `jitgemm run`.
void add_run(CLI::App& app);

}  // namespace jitgemm::cli
