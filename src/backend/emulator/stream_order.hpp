#pragma once

#include "jitgemm/types.hpp"

namespace jitgemm::emulator {

/// A turn on a stream, until it is destroyed. The turns of one stream follow each other, whichever threads and backends
/// take them, as work on a CUDA stream does; those of different streams overlap. A stream is its name, of any value,
/// and the null stream is one like the others.
class StreamTurn {
 public:
  explicit StreamTurn(Stream stream);  ///< waits until the turns before it have ended
  ~StreamTurn();
  StreamTurn(const StreamTurn&) = delete;
  StreamTurn& operator=(const StreamTurn&) = delete;

 private:
  Stream stream_;
};

/// Whether nobody has a turn, or waits for one.
bool is_idle(Stream stream);

}  // namespace jitgemm::emulator
