#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "jitgemm/wisdom.hpp"
#include "tune/tuning_db.hpp"

namespace jitgemm {

// Wisdom is what a machine has learned, as one file to carry to others. Its kernels are a GPU's: those of the emulator,
// which are code for the host, are neither written nor read. Numbers little-endian:
//
//     at   bytes
//      0       8  magic "jitwisdm"
//      8       4  version
//     12       4  length of the manifest
//     16       8  length of the records
//     24       8  length of the kernels
//     32          manifest (JSON), records (JSON lines), kernels (entries as they lie in a kernel cache)
//    end-32   32  XXH3-128 of everything before it, hex
//
// The manifest has "library", the version that wrote the file, "records", their number, and "kernels", of each in order
// "digest", "architecture" and "bytes". The same content gives the same bytes.

/// Where an entry of the kernel cache lies: in a file of its own, or within a wisdom file.
struct StoredKernel {
  std::string digest, architecture = {};
  std::filesystem::path file = {};
  std::uintmax_t offset = 0, bytes = 0;
  bool current = true;  ///< is_current(): this library may ask for it
};

/// Wisdom as it is stored. The public Wisdom is what of it is shown.
struct StoredWisdom {
  std::string library;  ///< the version that wrote it
  std::vector<TuningRecord> records;
  std::vector<StoredKernel> kernels;
  /// Of another version, which this one cannot read and leaves out.
  std::size_t foreign_records = 0, foreign_kernels = 0;
  std::size_t strange_kernels = 0;  ///< left out since they are not is_gpu_kernel()
};

/// Whether the entry of this digest is what NVRTC makes of its source, by its key: no host code of the emulator's, nor
/// an entry that is given out for another's. What its code does nobody knows.
bool is_gpu_kernel(const std::string& digest, const KernelSource& source);

/// Reads all of it once, a kernel at a time, and checks it. Throws Error{io}.
StoredWisdom read_wisdom_file(const std::filesystem::path& file);
/// Whole or not at all, over an older file. Throws Error{io}.
void write_wisdom_file(const std::filesystem::path& file, std::vector<TuningRecord> records,
                       std::vector<StoredKernel> kernels);

/// The entry's bytes, checked. Throws Error{io}, also for a file that has changed since it was listed.
std::string read_kernel(const StoredKernel& kernel);

}  // namespace jitgemm
