#include "parallel/processes.hpp"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <set>

#include "jitgemm/error.hpp"
#include "util/errno_text.hpp"

namespace jitgemm::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

class Ranks {
 public:
  Ranks(const std::vector<ChildCommand>& commands, const std::vector<std::string>& first_lines,
        const RankEvents& events)
      : events_(events) {
    for (const ChildCommand& command : commands) processes_.push_back(std::make_unique<ChildProcess>(command));
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) processes_[rank]->send(first_lines[rank]);
  }

  void run(double most_silent_seconds) {
    while (any_alive() && !is_time_to_stop()) {
      std::vector<pollfd> polled;
      for (const auto& process : processes_)
        polled.push_back({process->alive() ? process->descriptor() : -1, POLLIN, 0});
      if (::poll(polled.data(), polled.size(), 100) < 0 && errno != EINTR)
        throw Error(ErrorCode::io, fmt::format("cannot wait for the ranks: {}; try again", errno_text(errno)));
      for (std::size_t rank = 0; rank < processes_.size(); ++rank)
        if (polled[rank].fd >= 0 && polled[rank].revents) hear(rank);
      if (!failed_ && seconds_since(heard_) > most_silent_seconds)
        fail(
            fmt::format("no rank has said anything for {:.0f} s: one waits for another that does not come; "
                        "NCCL_DEBUG=WARN and NCCL_DEBUG_FILE may say why",
                        most_silent_seconds));
      events_.tick();
    }
    if (failed_) throw Error(ErrorCode::launch_failed, why_);
  }

 private:
  /// What one rank's end does to the others may be heard of before it: a moment for the cause to be heard of, too.
  static constexpr double grace_seconds = 0.3;

  bool any_alive() const {
    return std::ranges::any_of(processes_, [](const auto& process) { return process->alive(); });
  }
  bool is_time_to_stop() const { return failed_ && seconds_since(*failed_) > grace_seconds; }

  void hear(std::size_t rank) {
    heard_ = Clock::now();
    for (const std::string& line : processes_[rank]->receive()) hear(rank, line);
    if (processes_[rank]->alive()) return;
    const std::string& how = processes_[rank]->how_it_ended();
    if (how == "ended with status 0" || said_why_.contains(rank)) return;
    // One that was killed says nothing, and those that miss it say much.
    if (!killed_) fail(fmt::format("the process of rank {} {}; JITGEMM_LOG=info may say why", rank, how));
    killed_ = true;
  }

  void hear(std::size_t rank, const std::string& line) {
    const auto json = nlohmann::ordered_json::parse(line, nullptr, false);
    if (!json.is_object()) {
      said_why_.insert(rank);
      if (!failed_) fail(fmt::format("rank {} said what is no JSON: {}", rank, line));
    } else if (json.contains(rank_error)) {
      said_why_.insert(rank);
      if (!failed_) fail(fmt::format("rank {}: {}", rank, json.value(rank_error, line)));
    } else if (json.contains(to_others)) {
      for (std::size_t other = 0; other < processes_.size(); ++other)
        if (other != rank && processes_[other]->alive()) processes_[other]->send(line);
    } else {
      events_.said(int(rank), json);
    }
  }

  void fail(const std::string& why) {
    why_ = why;
    if (!failed_) failed_ = Clock::now();
  }

  const RankEvents& events_;
  std::vector<std::unique_ptr<ChildProcess>> processes_;
  Clock::time_point heard_ = Clock::now();
  std::optional<Clock::time_point> failed_;
  std::string why_;
  std::set<std::size_t> said_why_;
  bool killed_ = false;
};

}  // namespace

void run_ranks(const std::vector<ChildCommand>& ranks, const std::vector<std::string>& first_lines,
               double most_silent_seconds, const RankEvents& events) {
  Ranks(ranks, first_lines, events).run(most_silent_seconds);
}

}  // namespace jitgemm::cli
