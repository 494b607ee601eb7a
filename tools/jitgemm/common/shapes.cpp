#include "common/shapes.hpp"

#include <fmt/core.h>

#include <sstream>

#include "common/list_file.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm::cli {

std::vector<WordsOfLine> read_lines(const std::filesystem::path& path, const std::string& form) {
  std::istringstream file(read_list(path, fmt::format("a file of {} lines", form)));
  std::vector<WordsOfLine> lines;
  std::string line;
  for (int row = 1; std::getline(file, line); ++row) {
    const std::string words = line.substr(0, line.find('#'));
    if (words.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back({words, line, fmt::format("{}:{}", path.string(), row)});
  }
  if (lines.empty()) throw Error(ErrorCode::io, fmt::format("{} has no {} line", path.string(), form));
  return lines;
}

void check_size(std::int64_t size, const WordsOfLine& line) {
  if (size >= 0 && size <= INT32_MAX) return;
  throw Error(ErrorCode::io,
              fmt::format("{}: {} in \"{}\" is out of range: give 0 to 2^31 - 1", line.place, size, line.line));
}

std::vector<Shape> read_shapes(const std::filesystem::path& path) {
  std::vector<Shape> shapes;
  for (const WordsOfLine& line : read_lines(path, "`m n k`")) {
    std::istringstream words(line.words);
    Shape shape;
    std::string rest;
    if (!(words >> shape.m >> shape.n >> shape.k) || words >> rest)
      throw Error(ErrorCode::io, fmt::format("{}: \"{}\" is not `m n k`", line.place, line.line));
    for (const std::int64_t size : {shape.m, shape.n, shape.k}) check_size(size, line);
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace jitgemm::cli
