#include "progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace jitgemm::cli {

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) != 0), begin_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { hide(); }

void Progress::update(int done, int total, std::string_view note) {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || (drawn_ && done != total && now - last_drawn_ < 50ms)) return;
  constexpr int width = 28;
  const int filled = total > 0 ? std::clamp(width * done / total, 0, width) : 0;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  std::string left;
  if (done > 0 && done < total && seconds > 2) left = fmt::format(" {:.0f} s left", seconds / done * (total - done));
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
