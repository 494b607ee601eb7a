#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/emulator/stream_order.hpp"
#include "parallel/nccl_api.hpp"
#include "reference.hpp"

namespace jitgemm::test {
class FakeNccl;
}

struct ncclComm {
  jitgemm::test::FakeNccl* world;
  int rank;
};

namespace jitgemm::test {

/// NCCL between threads of one process, of which each is a rank, on memory of the host. A collective meets: the last
/// rank to come moves the data. A rank that waits too long for the others returns, as NCCL does at once, and its stream
/// is busy until they have come; with communicators that do not block, the call is in progress until then. Sums are
/// rounded after each rank. Any call can be made to fail. Thread-safe; takes the place of NCCL while it lives.
class FakeNccl {
 public:
  explicit FakeNccl(int ranks) : communicators_(std::size_t(ranks)), states_(std::size_t(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) communicators_[std::size_t(rank)] = {this, rank};
    api_.get_version = [](int* version) { return *version = 22809, nccl::Result::success; };
    api_.version = 22809;
    api_.get_error_string = [](nccl::Result) { return "made to fail"; };
    api_.comm_count = [](ncclComm* comm, int* count) {
      *count = int(comm->world->communicators_.size());
      return comm->world->answer(comm, "ncclCommCount");
    };
    api_.comm_user_rank = [](ncclComm* comm, int* rank) {
      *rank = comm->rank;
      return comm->world->answer(comm, "ncclCommUserRank");
    };
    api_.comm_cu_device = [](ncclComm* comm, int* device) {
      *device = comm->world->device;
      return comm->world->answer(comm, "ncclCommCuDevice");
    };
    api_.comm_get_async_error = [](ncclComm* comm, nccl::Result* state) {
      *state = comm->world->state_of(comm->rank).async_error;
      return nccl::Result::success;
    };
    api_.all_gather = [](const void* send, void* receive, std::size_t count, nccl::Type type, ncclComm* comm,
                         Stream stream) {
      return comm->world->meet(comm, {"ncclAllGather", count, type, 0}, send, receive, stream);
    };
    api_.reduce_scatter = [](const void* send, void* receive, std::size_t count, nccl::Type type, nccl::Reduction,
                             ncclComm* comm, Stream stream) {
      return comm->world->meet(comm, {"ncclReduceScatter", count, type, 0}, send, receive, stream);
    };
    api_.all_reduce = [](const void* send, void* receive, std::size_t count, nccl::Type type, nccl::Reduction,
                         ncclComm* comm, Stream stream) {
      return comm->world->meet(comm, {"ncclAllReduce", count, type, 0}, send, receive, stream);
    };
    api_.broadcast = [](const void* send, void* receive, std::size_t count, nccl::Type type, int root, ncclComm* comm,
                        Stream stream) {
      return comm->world->meet(comm, {"ncclBroadcast", count, type, root}, send, receive, stream);
    };
    nccl::nccl_for_tests = &api_;
  }
  ~FakeNccl() {
    give_up();
    nccl::nccl_for_tests = nullptr;
  }
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  ncclComm* communicator(int rank) { return &communicators_[std::size_t(rank)]; }
  nccl::NcclApi& api() { return api_; }

  /// The call of a rank with this number, from 1 on, answers this instead. Questions for asynchronous errors, as many
  /// as a wait takes, are no calls.
  void fail(int rank, int call, nccl::Result result) {
    const std::lock_guard lock(mutex_);
    states_[std::size_t(rank)].fault = {call, result};
  }
  void set_async_error(int rank, nccl::Result result) { state_of(rank).async_error = result; }
  /// By name, in order, with the count of elements of collectives: "ncclAllGather 640".
  std::vector<std::string> calls(int rank) {
    const std::lock_guard lock(mutex_);
    return states_[std::size_t(rank)].calls;
  }
  void forget_calls() {
    const std::lock_guard lock(mutex_);
    for (State& state : states_) state.calls.clear();
  }
  /// Streams that wait for ranks that did not come are idle from here on. With communicators that do not block, who
  /// comes later is told that a rank is gone.
  void give_up() {
    std::vector<std::thread> waiting;
    {
      const std::lock_guard lock(mutex_);
      gave_up_ = true;
      changed_.notify_all();
      waiting.swap(waiting_);
    }
    for (std::thread& thread : waiting) thread.join();
  }

  bool alone = false;        // one rank calls, and all the others do the same with the same
  bool nonblocking = false;  // of all communicators; ranks that disagree wait for each other for ever
  int device = 0;            // of all communicators
  std::chrono::milliseconds longest_wait = std::chrono::minutes(5);  // of its stream; what comes next goes on then
  std::chrono::milliseconds patience{20};                            // of a call that waits for other ranks
  std::atomic<bool> ranks_disagreed = false;                         // on a collective or its size

 private:
  struct Call {
    std::string name;
    std::size_t count;
    nccl::Type type;
    int root;
    bool operator==(const Call&) const = default;
  };
  struct Meeting {
    Call call;
    std::vector<std::optional<std::pair<const void*, void*>>> ranks;
    std::size_t arrived = 0;
    bool done = false;
  };
  struct State {
    std::optional<std::pair<int, nccl::Result>> fault;
    std::vector<std::string> calls;
    std::size_t meetings = 0;  // that this rank has come to
    std::atomic<nccl::Result> async_error = nccl::Result::success;
    State() = default;
    State(const State&) = delete;
  };

  State& state_of(int rank) { return states_[std::size_t(rank)]; }

  nccl::Result answer(ncclComm* comm, const std::string& what) {
    const std::lock_guard lock(mutex_);
    State& state = state_of(comm->rank);
    state.calls.push_back(what);
    if (state.fault && state.fault->first == int(state.calls.size())) return state.fault->second;
    return nccl::Result::success;
  }

  nccl::Result meet(ncclComm* comm, const Call& call, const void* send, void* receive, Stream stream) {
    if (const nccl::Result result = answer(comm, call.name + " " + std::to_string(call.count));
        result != nccl::Result::success)
      return result;
    std::unique_lock lock(mutex_);
    if (gave_up_ && nonblocking) return nccl::Result::remote_error;
    const std::size_t number = state_of(comm->rank).meetings++;
    Meeting& meeting = meetings_[number];
    if (meeting.arrived == 0) {
      meeting.call = call;
      meeting.ranks.resize(communicators_.size());
    }
    if (!(meeting.call == call)) ranks_disagreed = true;
    meeting.ranks[std::size_t(comm->rank)] = {send, receive};
    if (alone) {
      for (auto& rank : meeting.ranks) rank = {send, receive};
      meeting.arrived = communicators_.size() - 1;
    }
    if (++meeting.arrived == communicators_.size() && !(ranks_disagreed && nonblocking)) {
      if (alone)
        for (std::size_t rank = 0; rank < meeting.ranks.size(); ++rank)
          if (int(rank) != comm->rank) meeting.ranks[rank]->second = nullptr;
      if (!ranks_disagreed) move_data(meeting);
      meeting.done = true;
      for (State& state : states_)
        if (state.async_error == nccl::Result::in_progress) state.async_error = nccl::Result::success;
      changed_.notify_all();
      return nccl::Result::success;
    }
    if (changed_.wait_for(lock, patience, [&] { return meeting.done; })) return nccl::Result::success;
    if (nonblocking) {
      state_of(comm->rank).async_error = nccl::Result::in_progress;
      return nccl::Result::in_progress;
    }
    std::atomic<bool> busy = false;
    waiting_.emplace_back([this, &meeting, &busy, stream] {
      const emulator::StreamTurn turn(stream);
      busy = true;
      busy.notify_all();
      std::unique_lock waits(mutex_);
      changed_.wait_for(waits, longest_wait, [&] { return meeting.done || gave_up_; });
    });
    lock.unlock();
    busy.wait(false);
    return nccl::Result::success;
  }

  static DataType type_of(nccl::Type type) {
    switch (type) {
      case nccl::Type::int8:
        return s8;
      case nccl::Type::int32:
        return s32;
      case nccl::Type::float16:
        return f16;
      case nccl::Type::float32:
        return f32;
      case nccl::Type::float64:
        return f64;
      case nccl::Type::bfloat16:
        return bf16;
    }
    throw std::logic_error("no such type of NCCL");
  }

  static void move_data(Meeting& meeting) {
    const DataType type = type_of(meeting.call.type);
    const std::size_t ranks = meeting.ranks.size(), bytes = meeting.call.count * size_of(type);
    if (meeting.call.name == "ncclBroadcast") {
      const std::vector<char> data = copy_of(meeting.ranks[std::size_t(meeting.call.root)]->first, bytes);
      for (const auto& rank : meeting.ranks) put(rank->second, data.data(), bytes);
    } else if (meeting.call.name == "ncclAllGather") {
      std::vector<char> all;
      for (const auto& rank : meeting.ranks) {
        const std::vector<char> data = copy_of(rank->first, bytes);
        all.insert(all.end(), data.begin(), data.end());
      }
      for (const auto& rank : meeting.ranks) put(rank->second, all.data(), all.size());
    } else {
      const bool scatters = meeting.call.name == "ncclReduceScatter";
      const std::size_t count = meeting.call.count * (scatters ? ranks : 1);
      std::vector<char> sum = copy_of(meeting.ranks[0]->first, count * size_of(type));
      for (std::size_t rank = 1; rank < ranks; ++rank)
        for (std::int64_t i = 0; i < std::int64_t(count); ++i)
          store(load(sum.data(), i, type) + load(meeting.ranks[rank]->first, i, type), sum.data(), i, type);
      for (std::size_t rank = 0; rank < ranks; ++rank)
        put(meeting.ranks[rank]->second, sum.data() + (scatters ? rank * bytes : 0), bytes);
    }
  }
  static void put(void* to, const char* data, std::size_t bytes) {
    if (to) std::memcpy(to, data, bytes);
  }
  static std::vector<char> copy_of(const void* data, std::size_t bytes) {
    return {static_cast<const char*>(data), static_cast<const char*>(data) + bytes};
  }

  nccl::NcclApi api_;
  std::vector<ncclComm> communicators_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;
  std::map<std::size_t, Meeting> meetings_;
  std::vector<std::thread> waiting_;
  bool gave_up_ = false;
};

/// Calls work(rank) on a thread a rank, and waits for all. What one throws comes out, in the order of ranks.
inline void on_each_rank(int ranks, const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(rank);
      } catch (...) {
        thrown[std::size_t(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& one : thrown)
    if (one) std::rethrow_exception(one);
}

}  // namespace jitgemm::test
