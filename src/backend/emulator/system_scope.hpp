#pragma once

#include <cstddef>
#include <cstdint>

namespace jitgemm::emulator {

/// Stores a flag that other devices' kernels may be waiting for, as a copy engine does, and remembers that it is one:
/// kernels may touch it by ld_acquire_sys and st_release_sys alone. Thread-safe, as all of these.
void release_flag(std::uint32_t* address, std::uint32_t x);
/// Memory that is freed has no flags any more.
void forget_flags(const void* memory) noexcept;
/// What the host stores in its own memory needs no release that is known here.
void add_host_memory(const void* memory, std::size_t bytes);

}  // namespace jitgemm::emulator
