#include "common/list_file.hpp"

#include <fmt/core.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <string_view>
#include <system_error>

#include "jitgemm/error.hpp"

namespace jitgemm::cli {
namespace {

constexpr std::size_t most_bytes = std::size_t(64) << 20;
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

}  // namespace

std::string read_list(const std::filesystem::path& path, const std::string& what) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  const auto unreadable = [&] {
    return Error(ErrorCode::io, fmt::format("cannot read the list {}{}: give {}", path.string(),
                                            is_directory ? ", a directory" : "", what));
  };
  if (!file || is_directory) throw unreadable();
  std::string text;
  std::array<char, 1 << 16> block;
  while (file.read(block.data(), block.size()) || file.gcount() > 0) {
    text.append(block.data(), std::size_t(file.gcount()));
    if (text.size() > most_bytes)
      throw Error(ErrorCode::io, fmt::format("{} has more than 64 MiB: give {}", path.string(), what));
  }
  if (file.bad()) throw unreadable();
  if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
  return text;
}

}  // namespace jitgemm::cli
