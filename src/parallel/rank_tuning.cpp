#include "parallel/rank_tuning.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <span>
#include <string>

#include "parallel/agreement.hpp"
#include "parallel/sent_text.hpp"
#include "tune/contest.hpp"
#include "tune/measurement.hpp"
#include "util/log.hpp"

namespace jitgemm {
namespace {

constexpr LeastLead least_lead{.usually = 0.01};
constexpr double sample_us = 2000;  // of a sample, which has calls to fill it
constexpr int first_calls = 2, most_calls = 32;
constexpr int none = -1;

constexpr std::array stages{Stage{3, HUGE_VAL}, Stage{5, 1.2}, Stage{20, 1.05}};
constexpr std::array emulator_stages{Stage{2, HUGE_VAL}};

struct SentCandidate {
  ParallelMethod method = ParallelMethod::unfused;
  SentText<400> config;
};
struct SentTask {
  int count = 0;
  double budget_seconds = 0;
  bool bucket_m = false, emulated = false;
  SentCandidate candidates[most_rank_candidates];
};
static_assert(sizeof(SentTask) <= most_exchanged_bytes && std::is_trivially_copyable_v<SentTask>);

/// What a rank says where all meet.
struct Word {
  double us = 0;
  int next = none;  // rank 0's counts: what all ranks do
  bool failed = false, out_of_memory = false;
  SentText<256> why;
};
static_assert(sizeof(Word) <= most_exchanged_bytes && std::is_trivially_copyable_v<Word>);

/// What all have said.
struct Heard {
  double slowest_us = 0;
  int next = none;
  bool out_of_memory = false;
  std::string failure;  // of the first rank that has one
};

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(Steady::now() - begin_).count(); }

 private:
  using Steady = std::chrono::steady_clock;
  Steady::time_point begin_ = Steady::now();
};

/// Rank 0's: whose turn it is by the clock, and what came of it.
class Turns {
 public:
  Turns(std::vector<std::size_t> candidates, const RankTask& task)
      : task_(task),
        first_(candidates.front()),
        contest_(std::move(candidates), task.emulated ? std::span<const Stage>(emulator_stages) : stages, least_lead,
                 Heir::nobody),
        seconds_(measuring_share * task.budget_seconds),
        warm_up_seconds_(task.emulated ? 0 : std::min(1e-3 * warm_up_ms, warm_up_share * task.budget_seconds)) {}

  int next() {
    if (round() == 0 && clock_.seconds() < warm_up_seconds_) return int(first_);
    const bool all_had_one = round() > 1 || (round() == 1 && pending_.empty());
    if (all_had_one && clock_.seconds() >= seconds_) return none;
    if (pending_.empty()) {
      pending_ = contest_.next_round();
      std::ranges::reverse(pending_);
    }
    if (pending_.empty()) return none;
    const std::size_t candidate = pending_.back();
    pending_.pop_back();
    return int(candidate);
  }

  /// That next() was of; 0 while the devices warm up, whose times do not count.
  int round() const { return contest_.round(); }
  void add(std::size_t candidate, int round, double us) { contest_.add(candidate, round, us); }
  void drop(std::size_t candidate) {
    std::erase(pending_, candidate);
    contest_.drop(candidate);
  }

  std::optional<RankTimes> result() const {
    const int measured = contest_.measured();
    if (measured < 2) return std::nullopt;
    for (const std::size_t i : contest_.candidates())
      logger().debug("across ranks, median {:.1f} us: {} {}", summarise(contest_.times(i).us()).median,
                     to_string(task_.candidates[i].method), to_string(task_.candidates[i].config));
    const Contest::Result won = *contest_.result();
    return RankTimes{.candidate = won.winner,
                     .kept_first = won.kept_first,
                     .measured = measured,
                     .median_us = won.its.median,
                     .spread = won.its.spread};
  }

 private:
  const RankTask& task_;
  const std::size_t first_;
  Contest contest_;
  std::vector<std::size_t> pending_;  // of this round, the next one last
  const double seconds_, warm_up_seconds_;
  const Clock clock_;
};

class Together {
 public:
  Together(Communicator& communicator, RankArms& arms, const RankTask& task)
      : communicator_(communicator), arms_(arms), task_(task) {}

  std::optional<RankTimes> run() {
    const Clock clock;
    if (const Heard heard = meet(failure_of([&] { arms_.allocate(); })); !heard.failure.empty())
      return give_up(heard.failure);
    for (std::size_t i = 0; i < task_.candidates.size(); ++i) {
      const Heard heard = admit(i);
      if (heard.out_of_memory) return give_up(heard.failure);
      if (heard.failure.empty() && heard.next != none)
        admitted_.push_back(i);
      else
        skip(i, heard.failure.empty() ? "not ready within the tuning budget" : heard.failure);
    }
    if (admitted_.size() < 2) return give_up("fewer than two could be made ready");
    measure();
    auto result = turns_ ? turns_->result() : std::nullopt;
    if (!result) return give_up("fewer than two could be measured");
    result->seconds = clock.seconds();
    return result;
  }

 private:
  bool is_first() const { return communicator_.rank() == 0; }

  Heard meet(const std::optional<Error>& failure, double us = 0, int next = 0) {
    Word mine;
    mine.us = us;
    mine.next = next;
    if (failure) {
      mine.failed = true;
      mine.out_of_memory = failure->code() == ErrorCode::out_of_memory;
      mine.why = std::string_view(failure->what());
    }
    std::vector<Word> words(std::size_t(communicator_.ranks()));
    communicator_.all_gather_bytes(&mine, words.data(), sizeof mine);
    Heard heard{.slowest_us = 0, .next = words[0].next, .out_of_memory = false, .failure = {}};
    for (std::size_t rank = 0; rank < words.size(); ++rank) {
      heard.slowest_us = std::max(heard.slowest_us, words[rank].us);
      heard.out_of_memory |= words[rank].out_of_memory;
      if (words[rank].failed && heard.failure.empty())
        heard.failure = "rank " + std::to_string(rank) + ": " + words[rank].why.str();
    }
    return heard;
  }

  /// Each step ends where all meet, so that no rank takes one that another could not.
  Heard admit(std::size_t i) {
    const std::optional<Error> uncompiled = failure_of([&] { arms_.compile(i); });
    // The first two are always compared: what is chosen without measuring, and the first of the other method.
    const bool is_over =
        admitted_.size() >= 2 && admission_ && admission_->seconds() >= admission_share * task_.budget_seconds;
    Heard heard = meet(uncompiled, 0, is_over ? none : 0);
    if (!admission_) admission_.emplace();
    const auto goes_on = [&] { return heard.failure.empty() && heard.next != none; };
    if (goes_on()) heard = meet(failure_of([&] { arms_.stage(i); }));
    const auto prepare = [&](int calls) { heard = meet(failure_of([&] { arms_.prepare(i, calls); })); };
    if (goes_on()) heard = meet(failure_of([&] { arms_.run(i); }));
    if (goes_on()) prepare(task_.emulated ? 1 : first_calls);
    if (task_.emulated || !goes_on()) return heard;
    double us = 0;
    const std::optional<Error> untimed = failure_of([&] { us = arms_.sample(i); });
    heard = meet(untimed, us);
    if (goes_on())
      prepare(std::clamp(int(sample_us / std::max(heard.slowest_us, 1.0)) / 2 * 2, first_calls, most_calls));
    return heard;
  }

  /// The ranks meet before each sample; there they say what came of the one before.
  void measure() {
    if (is_first()) turns_.emplace(admitted_, task_);
    Heard heard = meet({}, 0, next());
    while (heard.next != none) {
      const auto candidate = std::size_t(heard.next);
      const int round = turns_ ? turns_->round() : 0;
      double us = 0;
      const std::optional<Error> failure = failure_of([&] { us = arms_.sample(candidate); });
      // Rank 0 says what comes next before it hears of this one, which may then have one more turn.
      heard = meet(failure, us, next());
      if (!heard.failure.empty()) skip(candidate, heard.failure);
      if (!turns_) continue;
      if (!heard.failure.empty())
        turns_->drop(candidate);
      else if (round > 0)
        turns_->add(candidate, round, heard.slowest_us);
    }
  }
  int next() { return turns_ ? turns_->next() : none; }

  void skip(std::size_t i, const std::string& why) const {
    if (!is_first()) return;
    const RankCandidate& candidate = task_.candidates[i];
    logger().info("tuning across ranks skipped {} {}: {}", to_string(candidate.method), to_string(candidate.config),
                  why);
  }
  std::nullopt_t give_up(const std::string& why) const {
    if (is_first()) logger().warn("tuning across ranks given up, using the cost model's choice: {}", why);
    return std::nullopt;
  }

  Communicator& communicator_;
  RankArms& arms_;
  const RankTask& task_;
  std::vector<std::size_t> admitted_;
  std::optional<Clock> admission_;  // since the first one is compiled
  std::optional<Turns> turns_;
};

}  // namespace

RankTask task_of_first(Communicator& communicator, const RankTask& task) {
  SentTask sent;
  sent.count = int(std::min(task.candidates.size(), most_rank_candidates));
  sent.budget_seconds = task.budget_seconds;
  sent.bucket_m = task.bucket_m;
  sent.emulated = task.emulated;
  for (std::size_t i = 0; i < std::size_t(sent.count); ++i)
    sent.candidates[i] = {task.candidates[i].method, std::string_view(to_string(task.candidates[i].config))};
  communicator.broadcast_bytes(&sent, sizeof sent, 0);
  RankTask all{
      .candidates = {}, .budget_seconds = sent.budget_seconds, .bucket_m = sent.bucket_m, .emulated = sent.emulated};
  for (std::size_t i = 0; i < std::size_t(sent.count); ++i)
    all.candidates.push_back({sent.candidates[i].method, parse_kernel_config(sent.candidates[i].config.str())});
  return all;
}

std::optional<RankTimes> measure_together(Communicator& communicator, RankArms& arms, const RankTask& task) {
  return Together(communicator, arms, task).run();
}

}  // namespace jitgemm
