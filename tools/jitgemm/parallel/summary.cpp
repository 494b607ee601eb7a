#include "parallel/summary.hpp"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "measure/percentiles.hpp"
#include "measure/rounds.hpp"

namespace jitgemm::cli {
namespace {

struct Tokens {
  const char* name;
  std::int64_t from, to;
};
constexpr std::array token_classes{Tokens{"2048 tokens and more", 2048, INT64_MAX}, Tokens{"129 to 2047", 129, 2047},
                                   Tokens{"up to 128", 0, 128}};

struct Exchanges {
  const char* name;
  bool (*holds)(Exchange);
};
constexpr std::array exchange_classes{
    Exchanges{"all_gather_a", [](Exchange x) { return x == Exchange::all_gather_a; }},
    Exchanges{"reduce_scatter_d", [](Exchange x) { return x == Exchange::reduce_scatter_d; }},
    Exchanges{"both of these", [](Exchange x) { return x != Exchange::all_reduce_d; }},
    Exchanges{"all_reduce_d", [](Exchange x) { return x == Exchange::all_reduce_d; }}};

using RatioOf = double (*)(const ParallelRecord&);
struct Column {
  const char* name;
  RatioOf of;
};
constexpr std::array columns{Column{"cublas+nccl / ours", over_cublas_nccl},
                             Column{"best in turn / ours", over_best_in_turn}, Column{"alone / ours", alone_over_ours}};

std::string line_of(const std::string& name, const std::vector<const ParallelRecord*>& records) {
  std::string line = fmt::format("{:<40}{:>7}", name, records.size());
  for (const Column& column : columns) {
    std::vector<double> ratios;
    for (const ParallelRecord* record : records)
      if (const double ratio = column.of(*record); ratio > 0) ratios.push_back(ratio);
    const Percentiles x = percentiles(ratios);
    line += x.count == 0 ? fmt::format("{:>28}", "") : fmt::format("{:>20.3f}{:>8.3f}", x.geomean, x.least);
  }
  std::vector<double> hidden;
  for (const ParallelRecord* record : records)
    if (const double share = share_hidden(*record); !std::isnan(share)) hidden.push_back(share);
  return line + (hidden.empty() ? "" : fmt::format("{:>8.2f}", median(hidden))) + "\n";
}

}  // namespace

std::string parallel_summary(const std::vector<ParallelRecord>& records) {
  std::string text = fmt::format("\n{:<40}{:>7}", "geometric mean, worst", "shapes");
  for (const Column& column : columns) text += fmt::format("{:>28}", column.name);
  text += fmt::format("{:>8}\n", "hidden");
  for (const Exchanges& exchange : exchange_classes)
    for (const Tokens& tokens : token_classes) {
      std::vector<const ParallelRecord*> of_line;
      for (const ParallelRecord& record : records)
        if (exchange.holds(record.shape.exchange) && record.shape.m >= tokens.from && record.shape.m <= tokens.to)
          of_line.push_back(&record);
      if (!of_line.empty()) text += line_of(fmt::format("{}, {}", exchange.name, tokens.name), of_line);
    }
  return text;
}

}  // namespace jitgemm::cli
