#pragma once

namespace CLI {
class App;
}

namespace jitgemm::cli {

/// Adds `jitgemm tune`.
void add_tune(CLI::App& app);

}  // namespace jitgemm::cli
