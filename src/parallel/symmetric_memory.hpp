#pragma once

#include <array>
#include <cstddef>
#include <functional>

#include "backend/backend.hpp"
#include "core/kernel_interface.hpp"

namespace jitgemm {

/// Gives every rank what each rank gives, in the order of ranks: `all` has room for that. Collective, of host memory.
using AllGatherBytes = std::function<void(const void* own, void* all, std::size_t bytes)>;

/// As much device memory at each rank of a node, which all of them reach: zeros when the constructor returns.
/// Collective. The destructor, which is not, closes the others' and frees the rank's own: no rank uses it any more, and
/// for the driver's sake none should have it open, which only free_together() sees to.
class SymmetricMemory {
 public:
  /// Throws Error{no_device} where the devices do not reach each other's memory, on all ranks; what fails on one rank
  /// is an Error of the same code on all.
  SymmetricMemory(Backend& backend, int rank, int ranks, const AllGatherBytes& all_gather, std::size_t bytes);
  ~SymmetricMemory();
  /// Collective: frees it when all ranks have closed it. No rank's calls use it any more, nor does anything later.
  void free_together(const AllGatherBytes& all_gather);
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;

  /// Where this rank's device has what is `offset` bytes behind the beginning of that rank's.
  template <typename T = void>
  T* at(int rank, std::size_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_[std::size_t(rank)]) + offset);
  }
  template <typename T = void>
  T* own(std::size_t offset = 0) const {
    return at<T>(rank_, offset);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  /// As the exchange, but leaves the rank's own memory behind if that throws.
  void meet(const AllGatherBytes& all_gather, const void* own, void* all, std::size_t bytes);
  void close_others() noexcept;
  void release_own() noexcept;

  Backend& backend_;
  int rank_, ranks_;
  std::size_t bytes_;
  std::array<void*, device::most_ranks> memory_ = {};
};

}  // namespace jitgemm
