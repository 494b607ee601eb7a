#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "core/enumerators.hpp"
#include "core/out_of_memory.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/kernel_config.hpp"

namespace jitgemm {

template <>
std::span<const Enumerator<MainLoop>> enumerators() {
  static constexpr std::array all{Enumerator<MainLoop>{MainLoop::sm80, "sm80"},
                                  Enumerator<MainLoop>{MainLoop::sm90, "sm90"}};
  return all;
}

template <>
std::span<const Enumerator<Schedule>> enumerators() {
  static constexpr std::array all{Enumerator<Schedule>{Schedule::data_parallel, "data_parallel"},
                                  Enumerator<Schedule>{Schedule::persistent, "persistent"},
                                  Enumerator<Schedule>{Schedule::split_k, "split_k"},
                                  Enumerator<Schedule>{Schedule::stream_k, "stream_k"},
                                  Enumerator<Schedule>{Schedule::stream_k_one_tile, "stream_k_one_tile"},
                                  Enumerator<Schedule>{Schedule::stream_k_two_tile, "stream_k_two_tile"}};
  return all;
}

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

bool parse_int(std::string_view text, int& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

/// "128x256x64" into as many integers.
template <typename... Int>
bool parse_extents(std::string_view text, Int&... values) {
  const std::vector<std::string_view> words = split(text, 'x');
  std::size_t i = 0;
  return words.size() == sizeof...(values) && (parse_int(words[i++], values) && ...);
}

bool parse_flag(std::string_view text, std::string_view off, std::string_view on, bool& value) {
  value = text == on;
  return value || text == off;
}

bool parse_pack(std::string_view text, bool& a, bool& b) {
  a = text == "a" || text == "ab";
  b = text == "b" || text == "ab";
  return a || b;
}

/// False for a word that names no field or has a bad value. `field` becomes the field's name.
bool parse_word(std::string_view word, KernelConfig& config, std::string_view& field) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) {
    if (const auto main_loop = parse_enumerator<MainLoop>(word)) {
      field = "main loop";
      config.main_loop = *main_loop;
      return true;
    }
    field = "tile";
    return parse_extents(word, config.block_m, config.block_n, config.block_k);
  }
  field = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  if (field == "schedule") {
    const std::optional<Schedule> schedule = parse_schedule(value);
    if (schedule) config.schedule = *schedule;
    return schedule.has_value();
  }
  if (field == "group_m") return parse_int(value, config.group_m);
  if (field == "stages") return parse_int(value, config.stages);
  if (field == "warps") return parse_int(value, config.warps);
  if (field == "cluster") return parse_extents(value, config.cluster_m, config.cluster_n, config.cluster_k);
  if (field == "cluster_at_launch") return parse_flag(value, "false", "true", config.cluster_at_launch);
  if (field == "consumers") return parse_flag(value, "cooperative", "ping_pong", config.ping_pong);
  if (field == "swap_ab") return parse_flag(value, "false", "true", config.swap_ab);
  if (field == "pack") return parse_pack(value, config.pack_a, config.pack_b);
  if (field == "splits") return parse_int(value, config.splits);
  if (field == "grid") return parse_int(value, config.grid);
  return false;
}

std::string text_of(const KernelConfig& config) {
  const auto number = [](int value) { return std::to_string(value); };
  std::string text(to_string(config.main_loop));
  text += " " + number(config.block_m) + "x" + number(config.block_n) + "x" + number(config.block_k);
  text += " group_m=" + number(config.group_m);
  text += " stages=" + number(config.stages);
  text += " warps=" + number(config.warps);
  if (config.cluster_m != 1 || config.cluster_n != 1 || config.cluster_k != 1) {
    text += " cluster=" + number(config.cluster_m) + "x" + number(config.cluster_n) + "x" + number(config.cluster_k);
  }
  if (config.cluster_at_launch) text += " cluster_at_launch=true";
  if (config.swap_ab) text += " swap_ab=true";
  if (config.ping_pong) text += " consumers=ping_pong";
  if (config.pack_a || config.pack_b)
    text += std::string(" pack=") + (config.pack_a ? "a" : "") + (config.pack_b ? "b" : "");
  text += " schedule=" + std::string(to_string(config.schedule));
  if (config.schedule == Schedule::split_k || config.splits != 1) text += " splits=" + number(config.splits);
  if (config.grid != 0) text += " grid=" + number(config.grid);
  return text;
}

KernelConfig read_config(std::string_view text) {
  KernelConfig config;
  std::vector<std::string_view> seen;
  std::string blanks(text);  // tabs are blanks
  std::ranges::replace(blanks, '\t', ' ');
  for (std::string_view word : split(blanks, ' ')) {
    if (word.empty()) continue;
    std::string_view field;
    if (!parse_word(word, config, field)) {
      throw Error(ErrorCode::invalid_config, "cannot read \"" + std::string(word) +
                                                 "\" in a configuration: write it like \"" + to_string(KernelConfig{}) +
                                                 "\"");
    }
    for (std::string_view earlier : seen) {
      if (earlier == field) {
        throw Error(ErrorCode::invalid_config, "\"" + std::string(word) + "\" gives the configuration's " +
                                                   std::string(field) + " a second time: leave one out");
      }
    }
    seen.push_back(field);
  }
  if (seen.empty()) {
    throw Error(ErrorCode::invalid_config,
                "the configuration is empty: write it like \"" + to_string(KernelConfig{}) + "\"");
  }
  return config;
}

}  // namespace

std::string_view to_string(MainLoop main_loop) { return name_of(main_loop); }
std::string_view to_string(Schedule schedule) { return name_of(schedule); }

std::optional<Schedule> parse_schedule(std::string_view text) { return parse_enumerator<Schedule>(text); }

std::string to_string(const KernelConfig& config) {
  return with_memory_errors([&] { return text_of(config); });
}

KernelConfig parse_kernel_config(std::string_view text) {
  return with_memory_errors([text] { return read_config(text); });
}

}  // namespace jitgemm
