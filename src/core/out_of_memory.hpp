#pragma once

#include <exception>
#include <new>

namespace jitgemm {

class Error;

/// Throws Error{out_of_memory} about the host's memory, and takes none to do so: the text is made when the library is
/// loaded.
[[noreturn]] void throw_out_of_memory();
/// What it throws, for as long as the process lives.
const Error& out_of_memory_error() noexcept;

/// Whether it says nothing but that there was no memory. A file that was being read is not wrong for that: whoever
/// takes other exceptions for a finding about it throws this one on.
bool is_out_of_memory(const std::exception& error) noexcept;

/// Each public function is called by way of this or of with_names(), so that no std::bad_alloc leaves the library.
template <typename Call>
decltype(auto) with_memory_errors(Call&& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    throw_out_of_memory();
  }
}

}  // namespace jitgemm
