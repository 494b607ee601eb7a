#include "util/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "util/environment.hpp"

namespace jitgemm {
namespace {

constexpr std::pair<std::string_view, spdlog::level::level_enum> levels[] = {
    {"trace", spdlog::level::trace}, {"debug", spdlog::level::debug}, {"info", spdlog::level::info},
    {"warn", spdlog::level::warn},   {"error", spdlog::level::err},   {"off", spdlog::level::off}};

spdlog::logger* make_logger() {
  // Not in spdlog's registry: the application's own set-up and shutdown of spdlog leave it alone.
  auto made = std::make_unique<spdlog::logger>("jitgemm", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  made->set_pattern("%Y-%m-%d %H:%M:%S.%e jitgemm %l: %v");
  made->set_level(spdlog::level::warn);
  made->flush_on(spdlog::level::warn);
  if (const auto text = environment("JITGEMM_LOG")) {
    if (const auto level = parse_log_level(*text)) {
      made->set_level(*level);
    } else {
      made->warn("JITGEMM_LOG={} is not a level; set it to trace, debug, info, warn, error or off", *text);
    }
  }
  return made.release();
}

}  // namespace

std::optional<spdlog::level::level_enum> parse_log_level(std::string_view text) {
  for (const auto& [name, level] : levels) {
    if (name == text) return level;
  }
  return std::nullopt;
}

spdlog::logger& logger() {
  static spdlog::logger* const instance = make_logger();  // never destroyed: threads may log while the process ends
  return *instance;
}

void warn_once(const std::string& key, const std::string& message) {
  static std::mutex& mutex = *new std::mutex;
  static auto& seen = *new std::unordered_set<std::string>;
  {
    const std::lock_guard lock(mutex);
    if (!seen.insert(key).second) return;
  }
  logger().log(spdlog::level::warn, spdlog::string_view_t(message));
}

}  // namespace jitgemm
