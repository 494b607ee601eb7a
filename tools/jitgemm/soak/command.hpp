#pragma once

namespace CLI {
class App;
}

namespace jitgemm::cli {

/// Adds `jitgemm soak`.
void add_soak(CLI::App& app);

}  // namespace jitgemm::cli
