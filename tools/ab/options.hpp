#pragma once

#include <string>
#include <vector>

namespace ab {

struct Options {
  bool emulator = false;
  std::string type = "f16", type_d = "f16", layout = "nn", accumulation = "fast", csv;
  int rounds = 25, again = 10, host_rounds = 200;
  std::vector<std::string> shapes;
};

/// Throws for words that make no sense.
Options parse(int count, char** arguments);

/// Of "n" or "t".
const char* layout_name(char letter);

}  // namespace ab
