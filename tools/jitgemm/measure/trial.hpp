#pragma once

#include <cstdint>
#include <string_view>

#include "jitgemm/context.hpp"
#include "measure/check.hpp"
#include "measure/inputs.hpp"
#include "measure/memory.hpp"
#include "measure/timing.hpp"

namespace jitgemm {

enum class Distribution : std::uint8_t;  // of rows among groups, tune/group_rows.hpp

}

namespace jitgemm::cli {

/// Empty: uniform. Throws Error{invalid_option}, also for one that is given to a problem without groups.
Distribution parse_distribution(std::string_view text, const Problem& problem);

/// What a plan says, done with random matrices on its Context's device.
class Trial {
 public:
  /// The Context outlives this. Of a problem with groups, how rows come to them.
  Trial(Context& context, const Plan& plan, Distribution distribution);

  /// One call, whose D is NaN before. Its seconds, until it is done.
  double run();
  /// Of what run() computed.
  Check check() const;
  /// On a GPU: of many calls, with a workspace of their own.
  Timing time();
  /// Microseconds that it takes at least.
  double floor_us() const;

 private:
  Context& context_;
  Backend& backend_;
  const Plan& plan_;
  OwnStream stream_;
  InputPools inputs_;
};

}  // namespace jitgemm::cli
