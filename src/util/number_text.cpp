#include "util/number_text.hpp"

#include <charconv>

namespace jitgemm {
namespace {

std::string text_of(double x, std::chars_format format, int precision) {
  char text[512];  // 309 digits before the point, at most
  const auto [end, error] = std::to_chars(text, text + sizeof text, x, format, precision);
  return {text, error == std::errc() ? end : text};
}

}  // namespace

std::string fixed_text(double x, int decimals) { return text_of(x, std::chars_format::fixed, decimals); }
std::string general_text(double x, int digits) { return text_of(x, std::chars_format::general, digits); }

std::optional<double> parse_double(std::string_view text) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return x;
}

}  // namespace jitgemm
