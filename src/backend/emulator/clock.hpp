#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace jitgemm::emulator {

/// Somebody who acts on memory in an order of its own: a thread, its asynchronous copies, a warpgroup's wgmma, the
/// copies that complete on one mbarrier, ... Numbered in each cluster, the threads of its blocks first.
using Entity = std::uint32_t;

/// A moment in an entity's life. Time 0: never.
struct Stamp {
  Entity entity = 0;
  std::uint32_t time = 0;

  bool operator==(const Stamp&) const = default;
};

/// A vector clock: how far along each entity is known to be. Immutable once shared, so that the hundreds of threads
/// that leave one barrier share one.
class Clock {
 public:
  std::uint32_t operator[](Entity e) const { return e < times_.size() ? times_[e] : 0; }
  bool knows(Stamp s) const { return s.time <= (*this)[s.entity]; }

  void raise(Stamp s) {
    if (s.time == 0) return;
    if (s.entity >= times_.size()) times_.resize(s.entity + 1);
    times_[s.entity] = std::max(times_[s.entity], s.time);
  }
  void join(const Clock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
    for (std::size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
  }
  bool operator==(const Clock& other) const { return times_ == other.times_; }
  bool contains(const Clock& other) const { return other.first_unknown_to(*this).time == 0; }
  /// The first entity that this is further along than the other; time 0 if there is none.
  Stamp first_unknown_to(const Clock& other) const {
    for (std::size_t i = 0; i < times_.size(); ++i)
      if (times_[i] > other[Entity(i)]) return {Entity(i), times_[i]};
    return {};
  }

 private:
  friend class SharedClock;
  std::vector<std::uint32_t> times_;
  int owners_ = 0;
};

/// Shared ownership within one host thread, hence without atomics. Null is the clock that knows nothing.
class SharedClock {
 public:
  SharedClock() = default;
  explicit SharedClock(Clock clock) : clock_(new Clock(std::move(clock))) { clock_->owners_ = 1; }
  SharedClock(const SharedClock& other) : clock_(other.clock_) {
    if (clock_) ++clock_->owners_;
  }
  SharedClock(SharedClock&& other) noexcept : clock_(std::exchange(other.clock_, nullptr)) {}
  SharedClock& operator=(SharedClock other) noexcept { return std::swap(clock_, other.clock_), *this; }
  ~SharedClock() {
    if (clock_ && --clock_->owners_ == 0) delete clock_;
  }

  const Clock* get() const { return clock_; }
  bool knows(Stamp s) const { return clock_ ? clock_->knows(s) : s.time == 0; }
  bool operator==(const SharedClock& other) const { return clock_ == other.clock_; }
  /// Shares the other's from here on if it says the same.
  bool adopt_if_equal(const SharedClock& other) {
    if (clock_ == other.clock_) return true;
    if (!clock_ || !other.clock_ || !(*clock_ == *other.clock_)) return false;
    *this = other;
    return true;
  }

 private:
  Clock* clock_ = nullptr;
};

/// Joins clocks, and remembers the latest results: the threads of a warpgroup ask for the same one after another.
class ClockJoiner {
 public:
  SharedClock join(const SharedClock& x, const SharedClock& y) {
    if (x == y || !y.get()) return x;
    if (!x.get()) return y;
    for (const Memo& memo : memos_)
      if (memo.x == x && memo.y == y) return memo.result;
    Memo& memo = memos_[next_++ % memos_.size()];
    memo = {x, y, {}};
    if (x.get()->contains(*y.get())) return memo.result = x;
    Clock joined = *x.get();
    joined.join(*y.get());
    return memo.result = SharedClock(std::move(joined));
  }

 private:
  struct Memo {
    SharedClock x, y, result;
  };
  std::array<Memo, 8> memos_;
  std::size_t next_ = 0;
};

}  // namespace jitgemm::emulator
