#pragma once

#include <cstddef>
#include <cstdint>

namespace jitgemm::emulator {

/// Stores a flag that other devices' kernels may be waiting for, as a copy engine does, and remembers that it is one:
/// kernels may touch it by ld_acquire_sys and st_release_sys alone. Thread-safe, as all of these.
void release_flag(std::uint32_t* address, std::uint32_t x);
/// Stores a word of 64 bits, as st_relaxed_sys does in the end: kernels may touch it by ld_relaxed_sys and
/// st_relaxed_sys alone.
void store_word(unsigned long long* address, unsigned long long x);
/// Memory that is freed has neither any more.
void forget_flags(const void* memory) noexcept;
/// What the host stores in its own memory needs no release that is known here.
void add_host_memory(const void* memory, std::size_t bytes);

}  // namespace jitgemm::emulator
