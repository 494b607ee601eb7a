#pragma once

namespace jitgemm::cli {

/// From now on, a signal that ends the command (SIGINT, SIGTERM, SIGHUP, unless it is ignored) ends its compilers first
/// and removes their files.
void clean_up_when_interrupted();

}  // namespace jitgemm::cli
