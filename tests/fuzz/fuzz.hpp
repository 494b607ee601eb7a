// What the fuzz targets share.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace jitgemm::fuzz {

/// Ends the process unless it holds: a finding.
void expect(bool holds, std::string_view what, std::source_location where = std::source_location::current());

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// An input as a row of values; zeros follow its end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : left_(text_of(data, size)) {}

  /// Any value of the type, those that name no enumerator too.
  template <typename T>
  T take() {
    if constexpr (std::is_same_v<T, bool>) {
      return take<std::uint8_t>() % 2 != 0;
    } else {
      T value{};
      const std::string_view bytes = take_text(sizeof value);
      std::memcpy(&value, bytes.data(), bytes.size());
      return value;
    }
  }
  template <typename T>
  void take_into(T& value) {
    value = take<T>();
  }
  std::string_view take_text(std::size_t size) {
    const std::string_view text = left_.substr(0, size);
    left_.remove_prefix(text.size());
    return text;
  }
  std::string_view rest() const { return left_; }

 private:
  std::string_view left_;
};

/// A folder of this process's own, in memory where there is such a file system; gone when the process ends.
const std::filesystem::path& scratch();
std::filesystem::path write_scratch(const std::string& name, std::string_view bytes);

}  // namespace jitgemm::fuzz
