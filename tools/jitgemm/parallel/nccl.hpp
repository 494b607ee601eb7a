#pragma once

#include <cstddef>
#include <string>

#include "jitgemm/tensor_parallel.hpp"
#include "jitgemm/types.hpp"

namespace jitgemm::cli {

/// The NCCL that the loader finds, opened on first use. Throws Error{no_device} without one that has what is needed.
void load_nccl();
/// "2.28.9"
std::string nccl_version();

/// What a communicator's ranks know each other by, in hexadecimal. Of rank 0, whose process lives as long as they do.
std::string new_nccl_id();

/// A communicator of one device a rank, of the current CUDA device. What it enqueues may be captured into a graph.
/// Every function may throw Error{communicator_failed}.
class Nccl {
 public:
  /// Collective.
  Nccl(int ranks, int rank, const std::string& id);
  /// Collective, unless an exception is on its way: then the others' calls fail, too.
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  NcclCommunicator get() const { return communicator_; }
  int ranks() const { return ranks_; }

  /// `bytes`: of each rank's part.
  void all_gather(const void* part, void* whole, std::size_t bytes, Stream stream);
  /// `count`: elements of each rank's part of the sum.
  void reduce_scatter(const void* whole, void* part, std::size_t count, DataType type, Stream stream);
  void all_reduce(const void* from, void* to, std::size_t count, DataType type, Stream stream);
  /// The largest of the ranks' values, which are f64.
  void all_max(const void* from, void* to, std::size_t count, Stream stream);

 private:
  int ranks_, exceptions_;
  NcclCommunicator communicator_ = nullptr;
};

}  // namespace jitgemm::cli
