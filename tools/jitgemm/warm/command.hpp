#pragma once

namespace CLI {
class App;
}

namespace jitgemm::cli {

/// Adds `jitgemm warm`.
void add_warm(CLI::App& app);

}  // namespace jitgemm::cli
