#pragma once

#include <string_view>

#include "c/errors.hpp"

namespace jitgemm::c {

/// Where the caller wants a text, looked at before there is one.
class TextOut {
 public:
  TextOut(void* buffer, std::size_t capacity, std::size_t* needed);
  void put_text(std::string_view text) const { put(text, 1); }
  void put_bytes(std::string_view bytes) const { put(bytes, 0); }  ///< without a NUL

 private:
  void put(std::string_view text, std::size_t nul_bytes) const;

  char* buffer_;
  std::size_t capacity_;
  std::size_t* needed_;
};

}  // namespace jitgemm::c
