#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace jitgemm::cli {

/// A line of a file that has a word at least; # begins a comment.
struct WordsOfLine {
  std::string words, line;  ///< without the comment, and with it
  std::string place;        ///< "shapes.txt:3"
};
/// Of a list (common/list_file.hpp). `form`: what lines look like, for the errors.
std::vector<WordsOfLine> read_lines(const std::filesystem::path& file, const std::string& form);
/// Throws Error{io} unless a size that stands on the line is one.
void check_size(std::int64_t size, const WordsOfLine& line);

struct Shape {
  std::int64_t m, n, k;
};
/// One `m n k` a line; # begins a comment.
std::vector<Shape> read_shapes(const std::filesystem::path& file);

}  // namespace jitgemm::cli
