#include "c/text.hpp"

#include <cstring>

namespace jitgemm::c {

TextOut::TextOut(void* buffer, std::size_t capacity, std::size_t* needed)
    : buffer_(static_cast<char*>(buffer)), capacity_(capacity), needed_(needed) {
  if (buffer || (needed && capacity == 0)) return;
  refuse(JITGEMM_STATUS_INVALID_ARGUMENT, capacity > 0
                                              ? "buffer is NULL, its capacity is " + std::to_string(capacity) +
                                                    "; give a buffer, or a capacity of 0 to ask for the bytes needed"
                                              : "buffer and needed are both NULL; give one of them");
}

void TextOut::put(std::string_view text, std::size_t nul_bytes) const {
  const std::size_t bytes = text.size() + nul_bytes;
  if (needed_) *needed_ = bytes;
  if (!buffer_) return;
  if (capacity_ < bytes) {
    refuse(JITGEMM_STATUS_BUFFER_TOO_SMALL, "the buffer has " + std::to_string(capacity_) + " bytes, the text needs " +
                                                std::to_string(bytes) + "; give that many");
  }
  std::memcpy(buffer_, text.data(), text.size());
  if (nul_bytes > 0) buffer_[text.size()] = 0;
}

}  // namespace jitgemm::c
