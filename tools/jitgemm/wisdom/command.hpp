#pragma once

namespace CLI {
class App;
}

namespace jitgemm::cli {

/// Adds `jitgemm wisdom`.
void add_wisdom(CLI::App& app);

}  // namespace jitgemm::cli
