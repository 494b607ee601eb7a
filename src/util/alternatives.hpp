#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace jitgemm {

/// "f16, bf16 or f32"
inline std::string alternatives(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text.append(i == 0 ? "" : i + 1 < names.size() ? ", " : " or ").append(names[i]);
  return text;
}

}  // namespace jitgemm
