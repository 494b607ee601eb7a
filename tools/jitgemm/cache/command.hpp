#pragma once

namespace CLI {
class App;
}

namespace jitgemm::cli {

/// Adds `jitgemm cache`.
void add_cache(CLI::App& app);

}  // namespace jitgemm::cli
