#include "all_pairs.hpp"

#include <algorithm>
#include <numeric>

#include "random.hpp"

namespace jitgemm::test {

std::vector<std::vector<int>> all_pairs(const std::vector<int>& axis_sizes, std::uint64_t seed,
                                        const Forbidden& forbidden) {
  const std::size_t axes = axis_sizes.size();
  std::vector<int> first(axes + 1, 0);  // of each axis in one row of all choices
  std::partial_sum(axis_sizes.begin(), axis_sizes.end(), first.begin() + 1);
  const auto choices = std::size_t(first[axes]);
  std::vector<bool> open(choices * choices, false);
  std::size_t open_count = 0;
  const auto clash = [&forbidden](std::size_t i, int x, std::size_t j, int y) {
    return forbidden && (i < j ? forbidden(i, x, j, y) : forbidden(j, y, i, x));
  };
  const auto pair = [&](std::size_t i, int x, std::size_t j, int y) {
    const auto a = std::size_t(first[i] + x), b = std::size_t(first[j] + y);
    return std::min(a, b) * choices + std::max(a, b);
  };
  for (std::size_t i = 0; i < axes; ++i)
    for (std::size_t j = i + 1; j < axes; ++j)
      for (int x = 0; x < axis_sizes[i]; ++x)
        for (int y = 0; y < axis_sizes[j]; ++y) {
          if (clash(i, x, j, y)) continue;
          open[pair(i, x, j, y)] = true;
          ++open_count;
        }

  Random random(seed);
  std::vector<std::vector<int>> rows;
  std::size_t next_open = 0;
  while (open_count > 0) {
    // Begins with a pair that is open, then gives axis after axis, in random order, the choice that closes most pairs.
    while (!open[next_open]) ++next_open;
    std::vector<int> row(axes, -1);
    for (const std::size_t choice : {next_open / choices, next_open % choices}) {
      const auto axis = std::size_t(std::upper_bound(first.begin(), first.end(), int(choice)) - first.begin() - 1);
      row[axis] = int(choice) - first[axis];
    }
    std::vector<std::size_t> order(axes);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = axes; i > 1; --i) std::swap(order[i - 1], order[random.next() % i]);
    for (const std::size_t axis : order) {
      if (row[axis] >= 0) continue;
      const int offset = random.between(0, axis_sizes[axis] - 1);
      int best = -1;
      for (int step = 0; step < axis_sizes[axis]; ++step) {
        const int x = (offset + step) % axis_sizes[axis];
        int closed = 0;
        bool allowed = true;
        for (std::size_t other = 0; other < axes; ++other) {
          if (row[other] < 0) continue;
          closed += open[pair(axis, x, other, row[other])];
          allowed = allowed && !clash(axis, x, other, row[other]);
        }
        if (allowed && closed > best) best = closed, row[axis] = x;
      }
    }
    for (std::size_t i = 0; i < axes; ++i) {
      for (std::size_t j = i + 1; j < axes; ++j) {
        const std::size_t p = pair(i, row[i], j, row[j]);
        open_count -= open[p];
        open[p] = false;
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace jitgemm::test
