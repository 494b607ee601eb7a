#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace jitgemm {

/// A text of bounded length, as ranks send it. What is longer is cut.
template <std::size_t size>
struct SentText {
  char text[size];

  SentText(std::string_view from = {}) : text{} { from.copy(text, size - 1); }
  std::string str() const { return text; }
};

}  // namespace jitgemm
