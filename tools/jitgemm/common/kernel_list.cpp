#include "common/kernel_list.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "common/list_file.hpp"

namespace jitgemm::cli {

KernelList parse_kernel_list(std::istream& file, const std::string& path) {
  KernelList list;
  std::string line;
  for (int row = 1; std::getline(file, line); ++row) {
    line.resize(std::min(line.find_first_of("#\r"), line.size()));
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const std::size_t cut = line.find("; ");
    try {
      if (cut == std::string::npos) throw Error(ErrorCode::io, "no `problem; configuration`");
      list.emplace_back(parse_problem(line.substr(0, cut)), parse_kernel_config(line.substr(cut + 2)));
    } catch (const Error& error) {
      throw Error(ErrorCode::io, fmt::format("{}:{}: {}; correct or remove the line", path, row, error.what()));
    }
  }
  if (list.empty()) throw Error(ErrorCode::io, path + " has no `problem; configuration` line");
  return list;
}

KernelList read_kernel_list(const std::string& path) {
  std::istringstream file(read_list(path, "what `jitgemm wisdom cover --list` wrote"));
  return parse_kernel_list(file, path);
}

}  // namespace jitgemm::cli
