#include "common/gpus.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "common/text.hpp"

namespace jitgemm::cli {
namespace {

[[noreturn]] void bad_gpus(const std::string& message) { throw Error(ErrorCode::invalid_option, message); }

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

int parse_number(const std::string& text, const std::string& whole) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    bad_gpus("--gpus " + whole + " is not known: give all, a count such as 2, or a list such as 0,2");
  return number;
}

}  // namespace

std::vector<int> parse_device_numbers(const std::string& text, int most, const std::string& unit) {
  std::vector<int> numbers;
  if (text == "all" || text.find(',') == std::string::npos) {
    const int count = text == "all" ? most : parse_number(text, text);
    if (count == 0) bad_gpus("--gpus 0 leaves nothing to run on: give 1 or more, or all");
    if (count > most)
      bad_gpus(fmt::format("--gpus {}: only {} here: give no more, or all", text, counted(std::uint64_t(most), unit)));
    for (int i = 0; i < count; ++i) numbers.push_back(i);
    return numbers;
  }
  for (const std::string& part : split(text)) {
    const int number = parse_number(part, text);
    if (number >= most)
      bad_gpus(fmt::format("--gpus {}: there is no GPU {}, the last one is {}", text, number, most - 1));
    if (std::count(numbers.begin(), numbers.end(), number))
      bad_gpus(fmt::format("--gpus {} names GPU {} twice: name it once", text, number));
    numbers.push_back(number);
  }
  return numbers;
}

void check_same_kind(const std::vector<int>& numbers, const std::vector<DeviceDescription>& gpus,
                     const std::string& advice) {
  for (const int number : numbers) {
    const DeviceDescription &x = gpus[std::size_t(number)], &first = gpus[std::size_t(numbers[0])];
    if (x.name == first.name && x.architecture == first.architecture && x.sm_count == first.sm_count) continue;
    bad_gpus(fmt::format("GPU {} is another kind ({}) than GPU {} ({}): {}", number, x.name, numbers[0], first.name,
                         advice));
  }
}

std::string visible_name(int gpu) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? split(visible).at(std::size_t(gpu)) : std::to_string(gpu);
}

}  // namespace jitgemm::cli
