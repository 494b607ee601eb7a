#include "backend/emulator/stream_order.hpp"

#include <mutex>
#include <unordered_map>

namespace jitgemm::emulator {

namespace {

/// Of a stream that has turns, taken or waited for.
struct Queue {
  std::mutex mutex;
  int turns = 0;
};

struct Queues {
  std::mutex mutex;
  std::unordered_map<Stream, Queue> by_stream;
};
Queues& queues() {
  static Queues& instance = *new Queues;  // never destroyed: threads may launch while the process ends
  return instance;
}

}  // namespace

StreamTurn::StreamTurn(Stream stream) : stream_(stream) {
  Queue* queue;
  {
    const std::lock_guard lock(queues().mutex);
    queue = &queues().by_stream[stream];
    ++queue->turns;
  }
  queue->mutex.lock();
}

StreamTurn::~StreamTurn() {
  const std::lock_guard lock(queues().mutex);
  const auto queue = queues().by_stream.find(stream_);
  queue->second.mutex.unlock();
  if (--queue->second.turns == 0) queues().by_stream.erase(queue);
}

bool is_idle(Stream stream) {
  const std::lock_guard lock(queues().mutex);
  return !queues().by_stream.contains(stream);
}

}  // namespace jitgemm::emulator
