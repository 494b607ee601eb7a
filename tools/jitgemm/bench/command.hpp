#pragma once

namespace CLI {
class App;
}

namespace jitgemm::cli {

/// Adds `jitgemm bench`.
void add_bench(CLI::App& app);

}  // namespace jitgemm::cli
