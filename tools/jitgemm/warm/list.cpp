#include "warm/list.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "common/parallel.hpp"
#include "common/progress.hpp"

namespace jitgemm::cli {
namespace {

using List = std::vector<std::pair<Problem, KernelConfig>>;

List parse_list(std::istream& file, const std::string& path) {
  List list;
  std::string line;
  for (int row = 1; std::getline(file, line); ++row) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
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

std::size_t compile_list(Context& context, const List& list, int jobs) {
  Progress progress("warming");
  parallel_for(
      int(list.size()), jobs, [&](int i) { context.compile(list[std::size_t(i)].first, list[std::size_t(i)].second); },
      [&](int done) { progress.update(done, int(list.size())); });
  progress.hide();
  return list.size();
}

}  // namespace

std::size_t warm_list(Context& context, const std::string& path, int jobs) {
  std::ifstream file(path);
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  if (!file || is_directory) {
    throw Error(ErrorCode::io, fmt::format("cannot read {}{}: give what `jitgemm wisdom cover --list` wrote", path,
                                           is_directory ? ", a directory" : ""));
  }
  return compile_list(context, parse_list(file, path), jobs);
}

std::size_t warm_few(Context& context, int jobs) {
  std::istringstream lines(few_kernels_sm90);
  return compile_list(context, parse_list(lines, "few_kernels_sm90"), jobs);
}

}  // namespace jitgemm::cli
