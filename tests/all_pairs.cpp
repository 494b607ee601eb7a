#include "all_pairs.hpp"

#include <algorithm>
#include <numeric>

#include "random.hpp"

namespace jitgemm::test {
namespace {

/// Which pairs of choices have not met yet. A choice is numbered through all axes.
class Pairs {
 public:
  explicit Pairs(const std::vector<int>& axis_sizes) : first_(axis_sizes.size() + 1, 0) {
    std::partial_sum(axis_sizes.begin(), axis_sizes.end(), first_.begin() + 1);
    open_.assign(choices() * choices(), false);
    for (std::size_t i = 0; i < axis_sizes.size(); ++i)
      for (std::size_t j = i + 1; j < axis_sizes.size(); ++j)
        for (int x = 0; x < axis_sizes[i]; ++x)
          for (int y = 0; y < axis_sizes[j]; ++y) open_[index(i, x, j, y)] = true;
  }

  bool is_open(std::size_t i, int x, std::size_t j, int y) const { return open_[index(i, x, j, y)]; }

  /// An open pair as a row that has made no other choice; empty if none is left.
  std::vector<int> row_of_next() {
    while (next_ < open_.size() && !open_[next_]) ++next_;
    if (next_ == open_.size()) return {};
    std::vector<int> row(first_.size() - 1, -1);
    for (const std::size_t choice : {next_ / choices(), next_ % choices()}) {
      const auto axis = std::size_t(std::upper_bound(first_.begin(), first_.end(), int(choice)) - first_.begin() - 1);
      row[axis] = int(choice) - first_[axis];
    }
    return row;
  }

  /// Those of a row's choices that are made.
  void close(const std::vector<int>& row) {
    for (std::size_t i = 0; i < row.size(); ++i)
      for (std::size_t j = i + 1; j < row.size(); ++j)
        if (row[i] >= 0 && row[j] >= 0) open_[index(i, row[i], j, row[j])] = false;
  }

 private:
  std::size_t choices() const { return std::size_t(first_.back()); }
  std::size_t index(std::size_t i, int x, std::size_t j, int y) const {
    const auto a = std::size_t(first_[i] + x), b = std::size_t(first_[j] + y);
    return std::min(a, b) * choices() + std::max(a, b);
  }

  std::vector<int> first_;
  std::vector<bool> open_;
  std::size_t next_ = 0;
};

/// Gives axis after axis, in random order, the choice that closes most pairs. False if an axis has none that is
/// allowed.
bool complete(std::vector<int>& row, const std::vector<int>& axis_sizes, const Pairs& pairs, const Forbidden& forbidden,
              Random& random) {
  std::vector<std::size_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.next() % i]);
  for (const std::size_t axis : order) {
    if (row[axis] >= 0) continue;
    const int offset = random.between(0, axis_sizes[axis] - 1);
    int most = -1, best = -1;
    for (int step = 0; step < axis_sizes[axis]; ++step) {
      const int x = (offset + step) % axis_sizes[axis];
      int closed = 0;
      for (std::size_t other = 0; other < row.size(); ++other)
        if (row[other] >= 0) closed += pairs.is_open(axis, x, other, row[other]);
      if (closed <= most) continue;
      row[axis] = x;
      if (!forbidden || !forbidden(row)) most = closed, best = x;
      row[axis] = -1;
    }
    if (best < 0) return false;
    row[axis] = best;
  }
  return true;
}

}  // namespace

std::vector<std::vector<int>> all_pairs(const std::vector<int>& axis_sizes, std::uint64_t seed,
                                        const Forbidden& forbidden) {
  constexpr int attempts = 40;
  Pairs pairs(axis_sizes);
  Random random(seed);
  std::vector<std::vector<int>> rows;
  for (std::vector<int> pair; !(pair = pairs.row_of_next()).empty(); pairs.close(pair)) {
    bool done = forbidden && forbidden(pair);
    for (int attempt = 0; attempt < attempts && !done; ++attempt) {
      std::vector<int> row = pair;
      done = complete(row, axis_sizes, pairs, forbidden, random);
      if (!done) continue;
      pairs.close(row);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace jitgemm::test
