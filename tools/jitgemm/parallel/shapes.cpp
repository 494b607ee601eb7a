#include "parallel/shapes.hpp"

#include <fmt/core.h>

#include <array>
#include <sstream>

#include "common/shapes.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm::cli {
namespace {

constexpr std::array exchanges{Exchange::all_gather_a, Exchange::reduce_scatter_d, Exchange::all_reduce_d};
constexpr const char* form = "`exchange m n k`";

struct Model {
  std::int64_t hidden, ffn, qkv;
};
constexpr Model llama_70b{8192, 28672, 10240}, llama_405b{16384, 53248, 18432};

void check_divides(const ParallelShape& shape, const char* name, std::int64_t size, int ranks) {
  if (size % ranks == 0) return;
  throw Error(ErrorCode::invalid_option, fmt::format("{}: {} = {} does not divide among {} ranks: give a multiple",
                                                     to_string(shape), name, size, ranks));
}

}  // namespace

std::optional<Exchange> parse_exchange(std::string_view name) {
  for (const Exchange exchange : exchanges)
    if (to_string(exchange) == name) return exchange;
  return std::nullopt;
}

std::string to_string(const ParallelShape& shape) {
  return fmt::format("{} {} {} {}", to_string(shape.exchange), shape.m, shape.n, shape.k);
}

std::vector<ParallelShape> read_parallel_shapes(const std::filesystem::path& file) {
  std::vector<ParallelShape> shapes;
  for (const WordsOfLine& line : read_lines(file, form)) {
    std::istringstream words(line.words);
    ParallelShape shape;
    std::string name, rest;
    if (!(words >> name >> shape.m >> shape.n >> shape.k) || words >> rest)
      throw Error(ErrorCode::io, fmt::format("{}: \"{}\" is not {}", line.place, line.line, form));
    const std::optional<Exchange> exchange = parse_exchange(name);
    if (!exchange)
      throw Error(ErrorCode::io,
                  fmt::format("{}: unknown exchange \"{}\": use all_gather_a, reduce_scatter_d or all_reduce_d",
                              line.place, name));
    shape.exchange = *exchange;
    for (const std::int64_t size : {shape.m, shape.n, shape.k}) {
      check_size(size, line);
      if (size == 0)
        throw Error(ErrorCode::io,
                    fmt::format("{}: nothing is computed by \"{}\": give 1 or more", line.place, line.line));
    }
    shapes.push_back(shape);
  }
  return shapes;
}

std::vector<ParallelShape> llama_shapes() {
  std::vector<ParallelShape> shapes;
  for (const Model& model : {llama_70b, llama_405b})
    for (const std::int64_t tokens : {512, 1024, 2048, 4096, 8192}) {
      shapes.push_back({Exchange::all_gather_a, tokens, model.qkv, model.hidden});
      shapes.push_back({Exchange::all_gather_a, tokens, 2 * model.ffn, model.hidden});
      shapes.push_back({Exchange::reduce_scatter_d, tokens, model.hidden, model.hidden});
      shapes.push_back({Exchange::reduce_scatter_d, tokens, model.hidden, model.ffn});
    }
  for (const std::int64_t tokens : {1, 4, 16, 32, 64, 128})
    for (const std::int64_t k : {llama_70b.hidden, llama_70b.ffn})
      shapes.push_back({Exchange::all_reduce_d, tokens, llama_70b.hidden, k});
  return shapes;
}

Problem problem_of_rank(const ParallelShape& shape, int ranks, DataType type) {
  Problem problem{.m = shape.m,
                  .n = shape.n,
                  .k = shape.k,
                  .a = {type},
                  .b = {type, Layout::column_major},
                  .d = {default_output(type)}};
  const bool gathers = shape.exchange == Exchange::all_gather_a;
  check_divides(shape, gathers ? "n" : "k", gathers ? shape.n : shape.k, ranks);
  if (shape.exchange != Exchange::all_reduce_d) check_divides(shape, "m", shape.m, ranks);
  (gathers ? problem.n : problem.k) /= ranks;
  return problem;
}

Problem problem_of_result(const ParallelShape& shape, int ranks, DataType type) {
  Problem problem = problem_of_rank(shape, ranks, type);
  problem.k = shape.k;
  if (shape.exchange == Exchange::reduce_scatter_d) problem.m /= ranks;
  return problem;
}

}  // namespace jitgemm::cli
