#include "one_shot_checker.hpp"

#include <algorithm>
#include <random>

namespace jitgemm::test {
namespace {

constexpr int taken = 1 << 30;  // of a word: nobody needs it any more

}  // namespace

OneShotChecker::State OneShotChecker::begin(const OneShotCalls& calls) {
  calls_ = &calls;
  broken_.clear();
  epochs_.clear();
  unsigned epoch = calls.epoch;
  for (std::size_t call = 0; call < calls.items.size(); ++call) epochs_.push_back(epoch = device::epoch_after(epoch));
  const auto agents = std::size_t(calls.ranks * calls.threads);
  return {.call = std::vector<short>(agents),
          .step = std::vector<short>(agents),
          .words = std::vector<int>(std::size_t(calls.ranks * 2 * calls.buffer_words))};
}

int& OneShotChecker::word(State& state, int rank, int call, int item, int sender) const {
  const int items = calls_->items[std::size_t(call)];
  const unsigned epoch = mistake_ == OneShotMistake::one_buffer ? 0 : epochs_[std::size_t(call)];
  const int part = mistake_ == OneShotMistake::parts_overlap ? sender / 2 : sender;
  const long long place = device::one_shot_place(epoch, calls_->buffer_words, part, items, item, 1);
  return state.words[std::size_t(rank * 2 * calls_->buffer_words + place)];
}

bool OneShotChecker::has_ended(const State& state, int agent) const {
  return state.call[std::size_t(agent)] == int(calls_->items.size());
}

/// Calls of a rank's stream come one after another.
bool OneShotChecker::may_begin(const State& state, int agent) const {
  if (mistake_ == OneShotMistake::overtakes) return true;
  const int first = agent / calls_->threads * calls_->threads;
  for (int thread = first; thread < first + calls_->threads; ++thread)
    if (state.call[std::size_t(thread)] < state.call[std::size_t(agent)]) return false;
  return true;
}

bool OneShotChecker::send(State& state, int rank, int call, int item, int recipient) {
  int& its = word(state, recipient, call, item, rank);
  if (its != 0 && its < taken) broken_ = "no word is written over that is still to be taken";
  its = name_of(rank, call, item);
  return true;
}

bool OneShotChecker::take(State& state, int rank, int call, int item, int sender) {
  int& its = word(state, rank, call, item, sender);
  const int there = its % taken, its_call = there / 16 / 64 - 1;
  const bool has_the_number = there != 0 && epochs_[std::size_t(its_call)] == epochs_[std::size_t(call)];
  if (!has_the_number && mistake_ != OneShotMistake::asks_for_any_call) return false;
  if (its != name_of(sender, call, item)) broken_ = "a word that is taken is what was asked for, and taken once";
  its |= taken;
  return true;
}

bool OneShotChecker::advance(State& state, int agent) {
  const int rank = agent / calls_->threads, thread = agent % calls_->threads, others = calls_->ranks - 1;
  const int call = state.call[std::size_t(agent)], step = state.step[std::size_t(agent)];
  if (step == 0 && !may_begin(state, agent)) return false;
  const int mine = (calls_->items[std::size_t(call)] + calls_->threads - 1 - thread) / calls_->threads;
  const int half = mine * others;
  const bool sends = (step < half) != (mistake_ == OneShotMistake::waits_before_it_sends);
  const int index = step % std::max(half, 1) / std::max(others, 1) * calls_->threads + thread;
  const int other = others == 0 ? 0 : step % others;
  if (half > 0) {
    // Recipients in the order of the kernel, senders in the order of ranks.
    const bool went_on = sends ? send(state, rank, call, index, device::recipient_at(rank, calls_->ranks, other + 1))
                               : take(state, rank, call, index, other < rank ? other : other + 1);
    if (!went_on) return false;
  }
  if (step + 1 < 2 * half) {
    ++state.step[std::size_t(agent)];
  } else {
    state.step[std::size_t(agent)] = 0;
    ++state.call[std::size_t(agent)];
  }
  return true;
}

std::string OneShotChecker::broken_in_every_order(const OneShotCalls& calls) {
  const State first = begin(calls);
  const int agents = calls.ranks * calls.threads;
  // Words follow from how far all threads are, while no rule is broken.
  const auto key_of = [](const State& state) {
    std::string key;
    for (std::size_t i = 0; i < state.call.size(); ++i) key += {char(state.call[i]), char(state.step[i])};
    return key;
  };
  std::unordered_set<std::string> seen = {key_of(first)};
  std::vector<State> open = {first};
  while (!open.empty()) {
    const State state = std::move(open.back());
    open.pop_back();
    ++states_;
    bool any = false, all_ended = true;
    for (int agent = 0; agent < agents; ++agent) {
      if (has_ended(state, agent)) continue;
      all_ended = false;
      State next = state;
      if (!advance(next, agent)) continue;
      if (!broken_.empty()) return broken_;
      any = true;
      if (seen.insert(key_of(next)).second) open.push_back(std::move(next));
    }
    if (!any && !all_ended) return "every wait ends";
  }
  return {};
}

std::string OneShotChecker::broken_in_one_order(const OneShotCalls& calls, unsigned seed) {
  State state = begin(calls);
  const int agents = calls.ranks * calls.threads;
  std::minstd_rand random(seed);
  std::vector<int> readiness(std::size_t(agents), 1);  // of 64: some are slow, and change
  for (;;) {
    if (random() % 64 == 0)
      for (int& its : readiness) its = random() % 3 == 0 ? 1 : 64;
    bool any = false, all_ended = true;
    const int from = int(random() % unsigned(agents));
    for (int i = 0; i < agents; ++i) {
      const int agent = (from + i) % agents;
      if (has_ended(state, agent)) continue;
      all_ended = false;
      if (int(random() % 64) >= readiness[std::size_t(agent)]) {
        any = true;  // may go on, and does not now
        continue;
      }
      any |= advance(state, agent);
      if (!broken_.empty()) return broken_;
      ++states_;
    }
    if (all_ended) return {};
    if (!any) {
      for (int agent = 0; agent < agents && !any; ++agent) any = !has_ended(state, agent) && advance(state, agent);
      if (!any) return "every wait ends";
    }
  }
}

}  // namespace jitgemm::test
