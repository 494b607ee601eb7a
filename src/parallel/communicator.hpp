#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>

#include "backend/backend.hpp"
#include "jitgemm/tensor_parallel.hpp"
#include "parallel/nccl_api.hpp"
#include "tune/device_memory.hpp"

namespace jitgemm {

inline constexpr std::size_t most_exchanged_bytes = 4096;  ///< by a rank, in one exchange of the hosts

/// The caller's NCCL communicator, with a time-out. Once a call has failed, or abort() was called, all others throw
/// what that came to. Its collectives are for one thread at a time; the rest is thread-safe.
class Communicator {
 public:
  /// Error{communicator_failed} for one that is null, has failed, or is of another device than the backend.
  Communicator(const nccl::NcclApi& api, NcclCommunicator communicator, Backend& backend, double timeout_seconds);
  /// Memory that a lost rank's exchange may still use stays allocated.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  double timeout_seconds() const { return timeout_seconds_; }
  const nccl::NcclApi& api() const { return api_; }

  // Small exchanges of the hosts: collective, complete on return. Error{peer_lost} after the time-out.
  /// `all` is of ranks() times `bytes`, in the order of ranks.
  void all_gather_bytes(const void* mine, void* all, std::size_t bytes);
  void broadcast_bytes(void* data, std::size_t bytes, int root);

  // Of device memory: collective, asynchronous on the stream. `send` may be where a rank's part of `receive` lies.
  void all_gather(const void* send, void* receive, std::size_t send_bytes, Stream stream);
  void reduce_scatter(const void* send, void* receive, std::size_t receive_count, DataType type, Stream stream);
  void all_reduce(const void* send, void* receive, std::size_t count, DataType type, Stream stream);

  /// Throws what has failed, also behind the calls' backs. Waits for nothing.
  void check();
  /// Until `done`, which the other ranks may have to see to. Error{peer_lost} after the time-out; `what` names the
  /// wait.
  void wait_until(const char* what, FunctionRef<bool()> done);
  /// From here on all calls throw this. The first one stays.
  [[noreturn]] void fail(const Error& error);
  bool has_failed() noexcept;
  void abort() noexcept { aborted_.store(true); }

  /// "rank 1", or what is known of who is missing: "one of the ranks 0, 2 and 3".
  std::string other_ranks() const;

 private:
  void check_failed();
  void check_async();
  void call(const char* name, FunctionRef<nccl::Result()> function);
  void exchange(const char* what, std::size_t bytes, FunctionRef<void(char* memory)> enqueue);

  const nccl::NcclApi& api_;
  const NcclCommunicator communicator_;
  Backend& backend_;
  const double timeout_seconds_;
  int rank_ = 0, ranks_ = 1;
  Stream stream_ = nullptr;
  DeviceMemory memory_{nullptr, {nullptr}};  // of exchanges
  std::atomic<bool> aborted_ = false;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace jitgemm
