#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "common/time_left.hpp"

namespace jitgemm::cli {

/// A progress bar on stderr, drawn only when stderr is a terminal, and wiped when done.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `share`: of the work that is done, where its pieces are uneven; else done / total.
  void update(int done, int total, std::string_view note = {}, std::optional<double> share = {});
  /// Wipes the bar, so that a line can be printed; the next update draws it again.
  void hide();

 private:
  std::string label_;
  bool terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point begin_, last_drawn_;
  TimeLeft time_left_;
};

}  // namespace jitgemm::cli
