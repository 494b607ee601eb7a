#include "soak/patterns.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/activations.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "kernels/legality.hpp"
#include "kernels/packing.hpp"
#include "plan/ranking.hpp"

namespace jitgemm::cli {
namespace {

// What exists. A new value needs its place here, and no more.
constexpr Layout layouts[] = {Layout::row_major, Layout::column_major};
constexpr Bias biases[] = {Bias::none, Bias::along_n, Bias::along_m};

constexpr std::size_t widest_element = 8;  // bytes
constexpr int choices_of_model = 40;       // configurations that patterns are drawn from
constexpr int most_matrices = 4;
constexpr std::int64_t least_largest_for_slabs = 2048;  // smaller soaks are to be quick

/// Pairs of input types that something multiplies, each with the outputs that it may have.
std::vector<std::vector<Problem>> type_combinations() {
  std::vector<std::vector<Problem>> pairs;
  for (const DataTypeInfo& a : data_types()) {
    for (const DataTypeInfo& b : data_types()) {
      std::vector<Problem> outputs;
      for (const DataTypeInfo& d : data_types()) {
        const Problem problem{.a = {a.type}, .b = {b.type}, .d = {d.type}};
        if (why_types_unsupported(problem).empty()) outputs.push_back(problem);
      }
      if (!outputs.empty()) pairs.push_back(std::move(outputs));
    }
  }
  return pairs;
}

template <typename Values>
auto one_of(const Values& values, std::mt19937_64& random) {
  return *(std::begin(values) + std::ptrdiff_t(random() % std::size(values)));
}

bool once_in(std::uint64_t count, std::mt19937_64& random) { return random() % count == 0; }

std::int64_t round_up(std::int64_t x, std::int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

}  // namespace

SoakPatterns::SoakPatterns(int count, std::int64_t largest, const RatedDevice& device, std::uint64_t seed)
    : largest_(largest), device_(device) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < count; ++i) patterns_.push_back(draw_pattern(std::size_t(i), random));
}

SoakPattern SoakPatterns::draw_pattern(std::size_t number, std::mt19937_64& random) const {
  static const std::vector<std::vector<Problem>> pairs = type_combinations();
  SoakPattern pattern;
  for (std::size_t next = number;; ++next) {
    Problem& p = pattern.problem;
    p = one_of(pairs[next % pairs.size()], random);
    p.a.layout = one_of(layouts, random);
    p.b.layout = one_of(layouts, random);
    do {
      p.epilogue.bias = one_of(biases, random);
      p.epilogue.activation = one_of(activations(), random).activation;
    } while (!why_types_unsupported(p).empty());
    p.epilogue.slope = 0.25;
    if (is_fp8(p.a.type) && once_in(2, random)) p.accumulation = Accumulation::promoted;
    p.alpha = once_in(20, random) ? 0 : 1;
    p.beta = once_in(2, random) ? 0 : 1;
    pattern.aligned = !once_in(3, random);
    pattern.batched = once_in(4, random);
    const NormalProblem sample = normalise(with_sizes(pattern, {largest_, largest_, largest_, 1}));
    std::vector<RankedConfig> ranked = rank(sample, device_, choices_of_model);
    if (ranked.empty()) continue;  // types that this device does not have
    if (number % 16 == 5 && has_slabs()) {
      if (!draw_slabs(pattern, random)) continue;
    } else if (number % 4 == 3) {
      for (int i = 0; i < 2; ++i) pattern.sizes.push_back(draw_sizes(pattern, random));
    } else {
      // Half of those that can pack their operands do: their calls are two kernels, which other threads' must not part.
      const auto packing =
          std::ranges::stable_partition(ranked, [](const RankedConfig& c) { return !packs(c.config); });
      if (!packing.empty() && once_in(2, random)) ranked = {packing.begin(), packing.end()};
      pattern.config = one_of(ranked, random).config;
    }
    pattern.packs = pattern.config && packs(*pattern.config);
    return pattern;
  }
}

bool SoakPatterns::has_slabs() const { return largest_ >= least_largest_for_slabs && device_.has_wgmma(); }

bool SoakPatterns::draw_slabs(SoakPattern& pattern, std::mt19937_64& random) const {
  pattern.aligned = pattern.batched = false;
  const std::int64_t k = 513 + 2 * std::int64_t(random() % 512);  // odd
  const auto rows = std::int64_t(max_packed_bytes / size_of(pattern.problem.a.type)) / k;
  const SoakPattern::Sizes sizes{rows + 1 + std::int64_t(random() % std::uint64_t(rows / 4)),
                                 16 + std::int64_t(random() % 16), k, 1};
  const NormalProblem problem = normalise(with_sizes(pattern, sizes));
  std::vector<KernelConfig> configs;
  for (const RankedConfig& ranked : rank(problem, device_)) {
    if (ranked.config.pack_a && slab_count(problem, slab_of(problem, ranked.config)) > 1)
      configs.push_back(ranked.config);
  }
  if (configs.empty()) return false;
  pattern.config = one_of(configs, random);
  pattern.sizes = {sizes};
  return true;
}

std::vector<DataType> SoakPatterns::types() const {
  std::set<DataType> types;
  for (const SoakPattern& pattern : patterns_) {
    const Problem& p = pattern.problem;
    types.insert({p.a.type, p.b.type, p.d.type, type_of_c(p)});
  }
  return {types.begin(), types.end()};
}

std::size_t SoakPatterns::most_bytes() const {
  return std::size_t(largest_) * std::size_t(round_up(largest_ + 1, 16)) * widest_element;
}

std::size_t SoakPatterns::most_input_bytes() const {
  return std::max(most_bytes(), has_slabs() ? 2 * max_packed_bytes : 0);
}

std::vector<Problem> SoakPatterns::largest_problems(const SoakPattern& pattern) const {
  std::vector<Problem> problems;
  for (const SoakPattern::Sizes& sizes : pattern.sizes) problems.push_back(with_sizes(pattern, sizes));
  if (problems.empty()) problems.push_back(with_sizes(pattern, {largest_, largest_, largest_, most_matrices}));
  return problems;
}

SoakPattern::Sizes SoakPatterns::draw_sizes(const SoakPattern& pattern, std::mt19937_64& random) const {
  std::uniform_real_distribution<double> exponent(0, std::log2(double(largest_) + 1));
  const auto size = [&] { return std::min(largest_, std::int64_t(std::exp2(exponent(random)))); };
  SoakPattern::Sizes sizes{size(), size(), size(), 1};
  if (pattern.aligned) sizes.n = round_up(sizes.n, 16);  // or the ends of D's rows would make kernels of their own
  if (pattern.batched) sizes.batch = 1 + std::int64_t(random() % most_matrices);
  return sizes;
}

Problem SoakPatterns::with_sizes(const SoakPattern& pattern, const SoakPattern::Sizes& sizes) const {
  Problem p = pattern.problem;
  p.m = sizes.m;
  p.n = sizes.n;
  p.k = sizes.k;
  // As many elements as any row can have from one to the next, so that the alignment is the pattern's.
  const auto ld = [&](const OperandMatrix& matrix) {
    const std::int64_t extent = std::max<std::int64_t>(1, matrix.extent);
    return pattern.aligned ? round_up(extent, std::int64_t(16 / size_of(matrix.type))) : extent | 1;
  };
  p.a.ld = ld(matrix_a(p));
  p.b.ld = ld(matrix_b(p));
  p.c.ld = ld(matrix_c(p));
  p.d.ld = ld(matrix_d(p));
  p.batch = pattern.batched ? sizes.batch : 1;
  const auto fits = [&] {
    const NormalProblem whole = normalise(p);
    for (const OperandMatrix& matrix : {matrix_a(whole), matrix_b(whole), matrix_c(whole), matrix_d(whole)}) {
      if (matrix.batch_bytes() > std::int64_t(most_bytes())) return false;
    }
    return true;
  };
  while (p.batch > 1 && !fits()) --p.batch;
  return p;
}

Problem SoakPatterns::draw(const SoakPattern& pattern, std::mt19937_64& random) const {
  // Integers for integers; else also what is no power of two, so that products with them are rounded.
  static const std::vector<double> integers{1, 2, -1, -3}, numbers{1, -2, 0.3, -1.7, 3.1};
  const std::vector<double>& scalars = compute_type_of(pattern.problem) == s32 ? integers : numbers;
  Problem p;
  do {
    p = with_sizes(pattern, pattern.sizes.empty() ? draw_sizes(pattern, random) : one_of(pattern.sizes, random));
  } while (pattern.config && !why_illegal(*pattern.config, normalise(p), device_).empty());
  if (p.alpha != 0) p.alpha = one_of(scalars, random);
  if (p.beta != 0) p.beta = one_of(scalars, random);
  if (p.batch > 1 && once_in(4, random)) (once_in(2, random) ? p.a.stride : p.b.stride) = 0;
  return p;
}

}  // namespace jitgemm::cli
