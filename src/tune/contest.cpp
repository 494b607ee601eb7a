#include "tune/contest.hpp"

#include <algorithm>
#include <utility>

namespace jitgemm {

Contest::Contest(std::vector<std::size_t> candidates, std::span<const Stage> stages, LeastLead least, Heir heir,
                 std::optional<EarlyEnd> early)
    : candidates_(std::move(candidates)),
      times_(candidates_.empty() ? 0 : std::ranges::max(candidates_) + 1),
      stages_(stages),
      least_(least),
      heir_(heir),
      early_(early) {
  if (!candidates_.empty()) first_ = candidates_.front();
}

std::vector<std::size_t> Contest::next_round() {
  for (; stage_ < stages_.size(); ++stage_, rounds_of_stage_ = 0) {
    if (rounds_of_stage_ == stages_[stage_].rounds) continue;
    if (rounds_of_stage_ == 0 || !early_) in_stage_ = within(stages_[stage_].within);
    if (const std::optional<std::size_t> leader = best()) {
      std::erase_if(in_stage_, [&](std::size_t who) { return is_out(who, *leader); });
      if (in_stage_.size() < 2 && (!early_ || times_[*leader].size() >= early_->rounds)) continue;
    }
    if (in_stage_.empty()) continue;
    if (round_ > 0) std::shuffle(in_stage_.begin(), in_stage_.end(), random_);
    ++round_, ++rounds_of_stage_;
    return in_stage_;
  }
  return {};
}

void Contest::drop(std::size_t who) {
  std::erase(candidates_, who);
  std::erase(in_stage_, who);
  times_[who] = {};
  if (!is_first(who)) return;
  first_.reset();
  if (heir_ == Heir::next && !candidates_.empty()) first_ = candidates_.front();
}

bool Contest::is_ahead(std::size_t x, std::size_t y, double times_noise) const {
  const std::vector<double> ratios = times_[x].over(times_[y]);
  if (ratios.empty()) return false;
  const Statistics ratio = summarise(ratios);
  const double least = ratios.size() < least_.few ? least_.of_few : least_.usually;
  return ratio.median < 1 - std::max(least, times_noise * ratio.noise);
}

bool Contest::is_out(std::size_t who, std::size_t leader) const {
  return early_ && who != leader && times_[who].over(times_[leader]).size() >= early_->rounds &&
         is_ahead(leader, who, early_->times_noise);
}

int Contest::measured() const {
  return int(std::ranges::count_if(candidates_, [this](std::size_t who) { return is_measured(who); }));
}

std::optional<std::size_t> Contest::best() const {
  std::optional<std::size_t> best;
  for (const std::size_t who : candidates_)
    if (is_measured(who) && (!best || over(who, *best).median < 1)) best = who;
  return best;
}

std::vector<std::size_t> Contest::within(double factor) const {
  const std::optional<std::size_t> fastest = best();
  std::vector<std::size_t> some;
  for (const std::size_t who : candidates_)
    if (!fastest || is_first(who) || over(who, *fastest).median <= factor) some.push_back(who);
  return some;
}

std::optional<Contest::Result> Contest::result() const {
  const std::optional<std::size_t> fastest = best();
  if (!fastest) return std::nullopt;
  const bool kept_first = first_ && *first_ != *fastest && is_measured(*first_) && !is_ahead(*fastest, *first_);
  const std::size_t winner = kept_first ? *first_ : *fastest;
  return Result{.winner = winner, .kept_first = kept_first, .its = summarise(times_[winner].us())};
}

std::string why_chosen(bool kept_first, const std::string& among) {
  return kept_first ? "the cost model's first choice, which no other of " + among + " beats by more than the noise"
                    : "fastest of " + among;
}

}  // namespace jitgemm
