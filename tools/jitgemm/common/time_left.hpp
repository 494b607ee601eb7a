#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace jitgemm::cli {

/// Estimates when work of uneven length ends from the share of it that is done, at the pace of the later half of the
/// time so far: the first pieces of work often compile what the others find.
class TimeLeft {
 public:
  /// `share` of the work, 0 to 1, is done after so many seconds. Both only grow.
  void add(double seconds, double share) {
    if (share > marks_.back().second) marks_.emplace_back(seconds, std::min(share, 1.0));
  }

  /// Seconds; nullopt while nothing is done.
  std::optional<double> at(double now) const {
    const auto [last_seconds, done] = marks_.back();
    if (done <= 0) return std::nullopt;
    const auto later =
        std::find_if(marks_.begin(), marks_.end(), [&](const auto& mark) { return mark.first > last_seconds / 2; });
    const auto [since, done_then] = later == marks_.begin() ? marks_.front() : *std::prev(later);
    const double seconds_a_share = (last_seconds - since) / (done - done_then);
    const double left = seconds_a_share * (1 - done) - (now - last_seconds);
    if (left > 0 || done >= 1) return std::max(left, 0.0);
    return (now - since) / (done - done_then) * (1 - done);  // overdue: it has become slower
  }

 private:
  std::vector<std::pair<double, double>> marks_{{0, 0}};  // seconds, share
};

}  // namespace jitgemm::cli
