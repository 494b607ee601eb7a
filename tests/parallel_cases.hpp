#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/tensor_parallel.hpp"
#include "random.hpp"
#include "reference.hpp"

namespace jitgemm::test {

/// A product across ranks with small whole numbers, whose sums are exact in any order, so that D has to be what one
/// product of all that the ranks have comes to. Gaps between rows and outputs hold NaN.
class ParallelCase {
 public:
  /// `problem` is what each rank is given.
  ParallelCase(const Problem& problem, Exchange exchange, int ranks, std::uint64_t seed = 1)
      : problem_(normalise(problem)), whole_(problem_), exchange_(exchange) {
    Random random(seed);
    const bool gathers = exchange == Exchange::all_gather_a;
    rank_ = problem_;
    if (gathers)
      rank_.m = problem_.m / ranks;
    else
      whole_.k = problem_.k * ranks;
    finish_ = problem_;
    if (exchange == Exchange::reduce_scatter_d) finish_.m = problem_.m / ranks;
    whole_.a.ld = whole_.b.ld = whole_.c.ld = whole_.d.ld = 0;
    whole_ = normalise(whole_);
    whole_a_ = drawn(random, whole_.m * whole_.k, whole_.a.type, 2);
    whole_b_ = drawn(random, whole_.k * whole_.n, whole_.b.type, 2);
    whole_c_ = drawn(random, whole_.m * whole_.n, type_of_c(whole_), 4);
    whole_bias_ = drawn(random, std::max(whole_.m, whole_.n), type_of_c(whole_), 4);
    scale_d_ = is_fp8(problem_.d.type) ? 0.5f : 1;
    for (int rank = 0; rank < ranks; ++rank) deal(rank);
  }

  const Problem& problem() const { return problem_; }

  Operands operands(int rank) {
    Rank& of = rank_operands_[std::size_t(rank)];
    Operands operands{.a = of.a.data(), .b = of.b.data(), .d = of.d.data() + guard};
    if (reads_c(problem_)) operands.c = of.c.data();
    if (problem_.epilogue.bias != Bias::none) operands.bias = of.bias.data();
    if (is_fp8(problem_.d.type)) operands.scale_d = &scale_d_;
    return operands;
  }
  void poison() {
    for (Rank& of : rank_operands_) fill(of.d, problem_.d.type);
  }

  /// Whether A, B, C and the bias of all ranks are, by bits, those of another.
  bool has_inputs_of(const ParallelCase& other) const {
    return std::ranges::equal(rank_operands_, other.rank_operands_, [](const Rank& x, const Rank& y) {
      return x.a == y.a && x.b == y.b && x.c == y.c && x.bias == y.bias;
    });
  }

  /// Empty, or what is wrong with a rank's D, after the call.
  std::string violation(int rank) const {
    const std::int64_t rows = finish_.m, n = problem_.n, first = first_row(rank);
    if (rows * n == 0) return {};
    const Reference expected = jitgemm::test::reference(
        whole_, {.a = whole_a_.data(), .b = whole_b_.data(), .c = whole_c_.data(), .bias = whole_bias_.data()},
        MainLoop::sm80, {.product = 1, .d = double(scale_d_)});
    const std::vector<char>& d = rank_operands_[std::size_t(rank)].d;
    const auto size = std::int64_t(size_of(problem_.d.type));
    std::vector<char> right(d.size());
    fill(right, problem_.d.type);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        const std::int64_t at = row * problem_.d.ld + column;
        const auto element = std::size_t((first + row) * n + column);
        const double is = load(d.data() + guard, at, problem_.d.type);
        if (!within(is, {expected.d[element], expected.bound[element]}, problem_.d.type))
          return "rank " + std::to_string(rank) + ": D[" + std::to_string(row) + ", " + std::to_string(column) +
                 "] is " + std::to_string(is) + ", not " + std::to_string(expected.d[element]);
        std::memcpy(right.data() + guard + at * size, d.data() + guard + at * size, std::size_t(size));
      }
    }
    return d == right ? "" : "rank " + std::to_string(rank) + ": something beside D is written";
  }

 private:
  static constexpr std::size_t guard = 256;
  struct Rank {
    std::vector<char> a, b, c, bias, d;
  };

  std::int64_t first_row(int rank) const { return exchange_ == Exchange::reduce_scatter_d ? rank * finish_.m : 0; }

  static std::vector<char> drawn(Random& random, std::int64_t count, DataType type, int most) {
    std::vector<char> values(std::size_t(count + 1) * size_of(type));
    for (std::int64_t i = 0; i < count; ++i)
      store(std::int64_t(random.uniform() * (2 * most + 1)) - most, values.data(), i, type);
    return values;
  }
  static void fill(std::vector<char>& memory, DataType type) {
    for (std::size_t i = 0; i < memory.size() / size_of(type); ++i)
      store(std::numeric_limits<double>::quiet_NaN(), memory.data(), std::int64_t(i), type);
  }

  /// Rows and columns of `from`, which is packed, as `to` has them in memory.
  static std::vector<char> part(const std::vector<char>& from, std::int64_t from_columns, Layout from_layout,
                                std::int64_t from_rows, std::int64_t row, std::int64_t column, std::int64_t rows,
                                std::int64_t columns, const Matrix& to) {
    const bool row_major = to.layout == Layout::row_major;
    std::vector<char> memory(std::size_t((row_major ? rows : columns) * to.ld + 1) * size_of(to.type));
    fill(memory, to.type);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        store(load(from.data(),
                   from_layout == Layout::row_major ? (row + i) * from_columns + column + j
                                                    : (column + j) * from_rows + row + i,
                   to.type),
              memory.data(), row_major ? i * to.ld + j : j * to.ld + i, to.type);
    return memory;
  }

  void deal(int rank) {
    const bool gathers = exchange_ == Exchange::all_gather_a;
    const Problem& p = problem_;
    Rank of;
    of.a = part(whole_a_, whole_.k, p.a.layout, whole_.m, gathers ? rank * rank_.m : 0, gathers ? 0 : rank * p.k,
                rank_.m, p.k, p.a);
    of.b = part(whole_b_, whole_.n, p.b.layout, whole_.k, gathers ? 0 : rank * p.k, 0, p.k, p.n, p.b);
    if (p.alpha == 0) {  // never read
      fill(of.a, p.a.type);
      fill(of.b, p.b.type);
    }
    Matrix c = p.c;
    c.type = type_of_c(p);
    c.layout = Layout::row_major;
    if (reads_c(p)) of.c = part(whole_c_, whole_.n, Layout::row_major, whole_.m, first_row(rank), 0, finish_.m, p.n, c);
    const auto size = std::int64_t(size_of(c.type));
    const std::int64_t first = p.epilogue.bias == Bias::along_m ? first_row(rank) : 0,
                       count = p.epilogue.bias == Bias::along_m ? finish_.m : p.n;
    of.bias.assign(whole_bias_.begin() + first * size, whole_bias_.begin() + (first + count) * size);
    of.d.resize(guard * 2 + std::size_t(finish_.m * p.d.ld) * size_of(p.d.type));
    fill(of.d, p.d.type);
    rank_operands_.push_back(std::move(of));
  }

  Problem problem_, rank_, whole_, finish_;
  Exchange exchange_;
  float scale_d_ = 1;
  std::vector<char> whole_a_, whole_b_, whole_c_, whole_bias_;
  std::vector<Rank> rank_operands_;
};

}  // namespace jitgemm::test
