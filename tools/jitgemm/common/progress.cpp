#include "common/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace jitgemm::cli {

namespace {

std::string time_left_text(double seconds) {
  if (seconds < 100) return fmt::format(" {:.0f} s left", seconds);
  if (seconds < 100 * 60) return fmt::format(" {:.0f} min left", seconds / 60);
  return fmt::format(" {:.1f} h left", seconds / 3600);
}

}  // namespace

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) != 0), begin_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { hide(); }

void Progress::update(int done, int total, std::string_view note, std::optional<double> share) {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (!share) share = total > 0 ? double(done) / total : 0;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  time_left_.add(seconds, *share);
  if (!terminal_ || (drawn_ && done != total && now - last_drawn_ < 50ms)) return;
  constexpr int width = 28;
  const int filled = std::clamp(int(width * *share), 0, width);
  std::string left;
  if (const auto more = time_left_.at(seconds); more && done < total && seconds > 2) left = time_left_text(*more);
  fmt::print(stderr, "\r\x1b[K{} [{}{}] {}/{}{} {:.60}", label_, std::string(filled, '#'),
             std::string(width - filled, ' '), done, total, left, note);
  std::fflush(stderr);
  drawn_ = true;
  last_drawn_ = now;
}

void Progress::hide() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace jitgemm::cli
