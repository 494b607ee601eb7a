#pragma once

#include <string>

#include "backend/cuda/nvrtc.hpp"
#include "jit/kernel_cache.hpp"
#include "sandbox.hpp"

namespace jitgemm::test {

/// A kernel as the compiler would make it, of about so many bytes.
inline CacheEntry sample_entry(const std::string& name, std::size_t code_bytes = 3000) {
  CacheEntry entry;
  entry.source = {"// source of " + name + "\nextern \"C\" void gemm();\n", "gemm", "sm_90a", "config of " + name};
  std::string code = std::string("\177ELF\0", 5) + name;
  while (code.size() < code_bytes) code += static_cast<char>(code.size() * 31 + code.size() / 256);
  entry.binary = {code, "gemm", "sm_90a", "nvrtc 13.0.88", 168, 8, 1024};
  return entry;
}

inline CacheKey key_of(const CacheEntry& entry) { return cache_key(entry.source, cuda::nvrtc_kind()); }

inline bool equal(const CacheEntry& x, const CacheEntry& y) {
  return x.source.text == y.source.text && x.source.entry == y.source.entry &&
         x.source.architecture == y.source.architecture && x.source.config == y.source.config &&
         x.binary.code == y.binary.code && x.binary.entry == y.binary.entry &&
         x.binary.architecture == y.binary.architecture && x.binary.compiler == y.binary.compiler &&
         x.binary.registers == y.binary.registers && x.binary.spill_bytes == y.binary.spill_bytes &&
         x.binary.static_smem_bytes == y.binary.static_smem_bytes;
}

/// Asks the cache for the entry; true when that compiled it. Throws unless the answer is right.
inline bool ask(KernelCache& cache, const CacheEntry& entry) {
  bool compiled = false, hit = false;
  const CacheEntry answer = cache.find_or_compile(key_of(entry), [&] { return compiled = true, entry; }, {}, &hit);
  if (!equal(answer, entry)) throw std::runtime_error("a wrong entry");
  if (hit == compiled) throw std::runtime_error("hit says the opposite of what happened");
  return compiled;
}

inline std::filesystem::path file_of(const std::filesystem::path& directory, const CacheEntry& entry) {
  return directory / (key_of(entry).digest + ".kernel");
}

/// Bytes of the files that are entries.
inline std::uintmax_t bytes_in(const std::filesystem::path& directory) {
  std::uintmax_t bytes = 0;
  for (const auto& item : std::filesystem::directory_iterator(directory)) {
    std::error_code error;  // it may have gone
    const auto size = item.path().extension() == ".kernel" ? item.file_size(error) : 0;
    if (!error) bytes += size;
  }
  return bytes;
}

inline KernelCache cache_at(const std::filesystem::path& directory, std::uintmax_t max_bytes = 0) {
  return KernelCache({.directory = directory, .max_bytes = max_bytes});
}

}  // namespace jitgemm::test
