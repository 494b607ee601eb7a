#pragma once

namespace CLI {
class App;
}

namespace jitgemm::cli {

/// Adds `jitgemm seed`.
void add_seed(CLI::App& app);

}  // namespace jitgemm::cli
