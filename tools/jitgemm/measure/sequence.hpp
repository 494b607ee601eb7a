#pragma once

#include <functional>
#include <memory>

#include "jitgemm/types.hpp"

namespace jitgemm {
class Backend;
}

namespace jitgemm::cli {

/// Two marks on a stream.
class Interval {
 public:
  explicit Interval(Backend& backend);
  ~Interval();
  Interval(const Interval&) = delete;
  Interval& operator=(const Interval&) = delete;

  void begin(Stream stream);
  void end(Stream stream);
  /// Whether the stream has passed the beginning.
  bool begun() const;
  double us() const;  ///< between the two; waits for the second

 private:
  Backend& backend_;
  void* begin_;
  void* end_;
};

/// Launches on a device that are timed as one, over and over.
class Sequence {
 public:
  virtual ~Sequence() = default;
  /// Microseconds of all of them.
  virtual double time_us() = 0;
};

/// A graph of what `enqueue` puts on the stream, replayed once now.
std::unique_ptr<Sequence> make_replay(Backend& backend, Stream stream, const std::function<void()>& enqueue);

/// Launches that a stream's queue takes while nothing runs are some 1000; a sequence of more would make the host wait.
inline constexpr int most_queued = 900;

class HostLead;
/// What `enqueue` puts on the stream, at most most_queued launches, anew each time and faster than the device needs it.
/// time_us() throws Error if the host does not keep ahead. The lead outlives it.
std::unique_ptr<Sequence> make_eager(Backend& backend, Stream stream, HostLead& lead, std::function<void()> enqueue);

}  // namespace jitgemm::cli
