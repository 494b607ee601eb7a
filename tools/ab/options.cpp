#include "options.hpp"

#include <map>
#include <stdexcept>

namespace ab {
namespace {

constexpr const char* usage =
    "usage: ab [OPTIONS] SHAPES...   files of `m n k` lines\n"
    "  --type T --d T --layout nn|nt|tn|tt --accumulation fast|promoted   of all shapes [f16 f16 nn fast]\n"
    "  --rounds N        that each graph is replayed in, in turn [25]\n"
    "  --again N         shapes that lose most, timed again at the end with four times the rounds [10]\n"
    "  --host-rounds N   of 100 calls each; 0 skips what a call costs the host [200]\n"
    "  --csv FILE        a line a shape\n"
    "  --emulator        only try the steps, on a CPU\n";

}  // namespace

Options parse(int count, char** arguments) {
  Options options;
  const std::map<std::string, std::string*> texts{{"--type", &options.type},
                                                  {"--d", &options.type_d},
                                                  {"--layout", &options.layout},
                                                  {"--accumulation", &options.accumulation},
                                                  {"--csv", &options.csv}};
  const std::map<std::string, int*> numbers{
      {"--rounds", &options.rounds}, {"--again", &options.again}, {"--host-rounds", &options.host_rounds}};
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word == "--emulator") {
      options.emulator = true;
    } else if (texts.contains(word) && i + 1 < count) {
      *texts.at(word) = arguments[++i];
    } else if (numbers.contains(word) && i + 1 < count) {
      *numbers.at(word) = std::stoi(arguments[++i]);
    } else if (word.starts_with("-")) {
      throw std::runtime_error(word + " is no option, or lacks its value\n" + usage);
    } else {
      options.shapes.push_back(word);
    }
  }
  if (options.layout.size() != 2 || options.layout.find_first_not_of("nt") != std::string::npos)
    throw std::runtime_error("--layout is one of nn, nt, tn and tt");
  return options;
}

const char* layout_name(char letter) { return letter == 'n' ? "row_major" : "column_major"; }

}  // namespace ab
