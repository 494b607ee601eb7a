#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/child_process.hpp"

namespace jitgemm::cli {

/// What a rank says to all others; the one key of such a line.
inline constexpr const char* to_others = "to_others";
/// Why a rank ends.
inline constexpr const char* rank_error = "error";

struct RankEvents {
  std::function<void(int rank, const nlohmann::ordered_json& line)> said;
  std::function<void()> tick;  ///< several times a second
};

/// Runs a process a rank, from its first line of input to its end. They answer in lines of JSON; what one has for the
/// others reaches them. The first that fails or dies ends them all, and its reason is thrown: a rank that is left alone
/// would wait for it. So does silence of all for so many seconds. On return, whichever, none is left.
void run_ranks(const std::vector<ChildCommand>& ranks, const std::vector<std::string>& first_lines,
               double most_silent_seconds, const RankEvents& events);

}  // namespace jitgemm::cli
