#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "core/kernel_interface.hpp"

namespace jitgemm::test {

/// Calls in one shot, one after another, of ranks whose threads have every so-manieth item (templates/one_shot.cuh).
struct OneShotCalls {
  int ranks = 2, threads = 1;
  std::vector<int> items = {1};  ///< of each call
  int buffer_words = 16;
  unsigned epoch = 0;  ///< before the first call
};

/// What to get wrong, to see that it is found.
enum class OneShotMistake {
  none,
  one_buffer,             // for even and odd calls
  overtakes,              // a rank's next call begins before all threads have ended this one
  waits_before_it_sends,  // a thread, for the sums of another rank
  parts_overlap,          // of two senders, in the buffer
  asks_for_any_call,      // takes words whatever their number
};

/// Follows the threads of all ranks through sends and waits, by the functions that give the kernel its places, numbers
/// and recipients (templates/one_shot_arguments.cuh, shard_arguments.cuh). A step is one word sent or taken.
class OneShotChecker {
 public:
  explicit OneShotChecker(OneShotMistake mistake = OneShotMistake::none) : mistake_(mistake) {}

  // Empty, or the first rule that is broken: a word that is taken is of the item, sender and call that were asked for;
  // no word is written over that is still to be taken; some thread can go on until all calls have ended.
  std::string broken_in_every_order(const OneShotCalls& calls);
  /// One order that is drawn by `seed`, in which some ranks are slow.
  std::string broken_in_one_order(const OneShotCalls& calls, unsigned seed);

  long long states() const { return states_; }  ///< that were seen

 private:
  /// All there is to know: how far each thread is, in calls and steps of a call, and what each rank's words are.
  struct State {
    std::vector<short> call, step;  // of each thread of each rank
    std::vector<int> words;         // of each rank: 0, or what was sent and has been taken or not
  };

  State begin(const OneShotCalls& calls);
  bool has_ended(const State& state, int agent) const;
  bool may_begin(const State& state, int agent) const;
  bool advance(State& state, int agent);  ///< false if it waits
  bool send(State& state, int rank, int call, int item, int recipient);
  bool take(State& state, int rank, int call, int item, int sender);
  int& word(State& state, int rank, int call, int item, int sender) const;
  int name_of(int sender, int call, int item) const { return ((call + 1) * 64 + item) * 16 + sender; }

  OneShotMistake mistake_;
  const OneShotCalls* calls_ = nullptr;
  std::vector<unsigned> epochs_;
  std::string broken_;
  long long states_ = 0;
};

}  // namespace jitgemm::test
