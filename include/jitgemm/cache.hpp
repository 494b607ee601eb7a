#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jitgemm/constraints.hpp"
#include "jitgemm/exchange.hpp"
#include "jitgemm/export.hpp"
#include "jitgemm/plan.hpp"
#include "jitgemm/problem.hpp"

namespace jitgemm {

/// A compiled kernel on disk, one file each.
struct CachedKernel {
  std::string digest;  ///< 32 hex digits: what it is found by, and its file's name
  std::string path;
  std::string fault;  ///< what is wrong with it; empty if nothing is
  std::uint64_t bytes = 0;
  std::int64_t last_used = 0;  ///< seconds since 1970, to the minute
  bool read_only = false;      ///< of JITGEMM_SYSTEM_CACHE_DIR
  // Empty and 0 where there is a fault.
  std::string entry;         ///< the name of its function
  std::string architecture;  ///< "sm_90a"
  std::string config;        ///< what of a KernelConfig is compiled in, as to_string() has it; or "packing"
  std::string compiler;      ///< name and version: "nvrtc 13.0.88"
  int registers = 0;         ///< a thread
  int spill_bytes = 0;
};

/// What has been measured to be the best for a problem on a device.
struct JITGEMM_EXPORT TuningResult {
  Problem problem;  ///< normalised, and scalars reduced to whether they are zero; across ranks, what each is given
  Constraints constraints = {};
  std::string device;        ///< its name: "NVIDIA H200"
  std::string architecture;  ///< "sm_90a"
  int sm_count = 0;
  bool emulated = false;
  KernelConfig config;
  double median_us = 0;
  double spread = 0;                            ///< (p90 - p10) / median
  std::vector<MeasuredConfig> runners_up = {};  ///< of the same measurement, best first
  std::string date;                             ///< of the measurement: "2026-11-21"
  std::string library;                          ///< the version of jitgemm that measured
  std::string candidates;                       ///< a digest of what was measured; empty in old results
  int ranks = 1;                                ///< that compute it together; 1: what Context::gemm() does
  // Of several ranks, whose slowest one's time counts:
  Exchange exchange = Exchange::all_gather_a;
  ParallelMethod method = ParallelMethod::unfused;  ///< that has the configuration

  std::string json() const;  ///< one object, in a line, as tuning.jsonl in the cache directory has it
};

/// What Cache::export_kernels() and export_binaries() did.
struct CacheExport {
  std::size_t kernels = 0;  ///< copied
  std::string directory;    ///< the folder, as a full path
  std::string remark;       ///< what keeps others from using exported kernels, with the way out; empty if nothing does
};

/// Kernels and tuning results on disk: the cache directory, and JITGEMM_SYSTEM_CACHE_DIR under it, which is only read.
/// For looking after them, beside Contexts and processes that use them; a Context needs none of this. Thread-safe.
/// Every function may throw Error.
class JITGEMM_EXPORT Cache {
 public:
  /// directory: as ContextOptions::cache_dir. One that is named must be there; the default one is made if need be.
  /// Error{io} if there is nothing to read: neither that directory nor the system's can be used.
  explicit Cache(const std::optional<std::string>& directory = {});

  /// As a full path; empty if it cannot be used, and the system's is all there is.
  std::string directory() const;
  std::uint64_t max_bytes() const;  ///< what Contexts hold the kernels in directory() to

  /// Last used first. Reads no more of a kernel than its head: some faults only verify() sees.
  std::vector<CachedKernel> kernels() const;
  /// The same, each read whole and checked.
  std::vector<CachedKernel> verify() const;

  /// Removes damaged kernels and what killed processes left, then the least recently used kernels until max_bytes at
  /// most are left in directory(). Kernels of other versions of jitgemm are not damaged. Returns the bytes freed.
  /// Error{io} if some that were to go cannot be removed.
  std::uint64_t prune(std::uint64_t max_bytes = UINT64_MAX);
  /// Removes all kernels in directory(). Tuning results stay. Returns the bytes freed.
  std::uint64_t clear();

  /// Copies the whole kernels to a folder, which is made if need be, for all users to read: what
  /// JITGEMM_SYSTEM_CACHE_DIR may name, or a Context's cache_dir. Error{io} if there are none.
  CacheExport export_kernels(const std::string& folder) const;
  /// Each as two files instead, for a disassembler: DIGEST.cubin (.so of the emulator's) and its source, DIGEST.cu.
  CacheExport export_binaries(const std::string& folder) const;

  /// Of all devices and constraints; of those in the system's directory, what is not in directory().
  std::vector<TuningResult> tuning_results() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace jitgemm
