#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.hpp"
#include "jit/kernel_cache.hpp"

namespace jitgemm {

/// A kernel ready to launch, with the source and binary facts it came from.
struct Kernel {
  std::unique_ptr<LoadedKernel> loaded;
  KernelBinary facts;  ///< code left out
  std::size_t smem_bytes = 0;
};

/// Kernels in memory, by key; gets the missing ones from the disk cache or the compiler. One shared future a key:
/// threads that ask for the same new kernel wait for one compile, others are not held up. Failures are not kept: each
/// of those who waited gets a copy of the Error, and the next to ask tries again.
class KernelStore {
 public:
  KernelStore(Backend& backend, KernelCache& cache);
  ~KernelStore();

  /// Loaded and launchable. Drops and rebuilds, once, an entry that the driver refuses. smem_bytes, which the source
  /// implies, is the dynamic shared memory that it is loaded for.
  std::shared_ptr<const Kernel> get(const KernelSource& source, std::size_t smem_bytes);
  /// Whether get() would need no compiler: loaded, or whole in the disk cache.
  bool at_hand(const KernelSource& source);
  /// Compiled (or found), in the disk cache, not loaded.
  CacheEntry warm(const KernelSource& source);

  std::uint64_t compiles() const, disk_hits() const, memory_hits() const, rebuilt() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace jitgemm
