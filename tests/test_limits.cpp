// The limits of sizes, leading dimensions, strides and batches: what is at one has a plan, what is past it an error.
#include <iomanip>
#include <iostream>

#include "catch.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "jitgemm/jitgemm.hpp"
#include "kernels/launch_shape.hpp"
#include "kernels/legality.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::int64_t two_31 = std::int64_t(1) << 31, two_50 = std::int64_t(1) << 50;
constexpr Layout columns = Layout::column_major;

struct Limit {
  std::string name, at_text, past_text;
  Problem at, past;
  std::string says;  ///< of what is past
};

/// With the problem's own field changed.
template <typename Change>
Limit limit(const std::string& name, const std::string& at_text, const std::string& past_text, Problem problem,
            Change change, std::int64_t at, std::int64_t past, const std::string& says) {
  Limit made{name, at_text, past_text, problem, problem, says};
  change(made.at, at);
  change(made.past, past);
  return made;
}

std::vector<Limit> limits() {
  const Problem tiny{.m = 1, .n = 1, .k = 1}, two{.m = 2, .n = 2, .k = 2, .batch = 2};
  const std::string range = "give 0 to 2^31 - 1";
  return {
      limit(
          "m", "2^31 - 1", "2^31", tiny, [](Problem& p, auto x) { p.m = x; }, two_31 - 1, two_31, range),
      limit(
          "n", "2^31 - 1", "2^31", tiny, [](Problem& p, auto x) { p.n = x; }, two_31 - 1, two_31, range),
      limit(
          "k", "2^31 - 1", "2^31", tiny, [](Problem& p, auto x) { p.k = x; }, two_31 - 1, two_31, range),
      limit(
          "batch x tiles", "2^30 - 1", "2^30", tiny, [](Problem& p, auto x) { p.batch = x; }, two_31 / 2 - 1,
          two_31 / 2, "tiles x splits is less than 2^30"),
      limit(
          "batch", "2^30 - 1", "2^31", tiny, [](Problem& p, auto x) { p.batch = x; }, two_31 / 2 - 1, two_31, range),
      limit(
          "groups", "2^30 - 1", "2^30", Problem{.m = 1, .n = 1, .k = 1, .grouping = Grouping::offsets},
          [](Problem& p, auto x) { p.batch = x; }, two_31 / 2 - 1, two_31 / 2, "too many groups: give less than 2^30"),
      limit(
          "lda, bytes", "2^50", "more", tiny, [](Problem& p, auto x) { p.a.ld = x; }, two_50 / 2, two_50 / 2 + 1,
          "larger than 2^50 bytes"),
      limit(
          "ldb x rows, bytes", "2^50", "more", two, [](Problem& p, auto x) { p.b.ld = x; }, two_50 / 4, two_50 / 4 + 1,
          "larger than 2^50 bytes"),
      limit(
          "ldd x rows, bytes", "2^50", "more", Problem{.m = 2, .n = 2, .k = 2}, [](Problem& p, auto x) { p.d.ld = x; },
          two_50 / 4, two_50 / 4 + 1, "larger than 2^50 bytes"),
      limit(
          "stride_a, bytes", "2^61 - 4", "2^61", two, [](Problem& p, auto x) { p.a.stride = x; },
          (std::int64_t(1) << 60) - 2, std::int64_t(1) << 60, "larger than 2^62 bytes"),
      limit(
          "stride_d, bytes", "2^61 - 4", "2^61", two, [](Problem& p, auto x) { p.d.stride = x; },
          (std::int64_t(1) << 60) - 2, std::int64_t(1) << 60, "larger than 2^62 bytes"),
  };
}

}  // namespace

TEST_CASE("The table of limits: what is at one has a plan on every architecture, what is past it one clear error",
          "[limits]") {
  std::cout << std::left << std::setw(20) << "limit" << std::setw(12) << "at it" << std::setw(8) << "past it"
            << "past it says\n";
  for (const Limit& limit : limits()) {
    std::string text;
    for (const char* architecture : {"sm_80", "sm_89", "sm_90a", "sm_100a"}) {
      INFO(limit.name << " on " << architecture);
      Context context({.device = Device::compile_only, .architecture = architecture, .tuning = Tuning::off});
      Plan plan;
      REQUIRE_NOTHROW(plan = context.plan(limit.at));
      CHECK(why_illegal(plan.config, normalise(plan.problem), device_info_for(architecture)) == "");
      const Error error = error_of([&] { context.plan(limit.past); });
      CHECK(error.code() == ErrorCode::invalid_problem);
      text = error.what();
      CHECK_THAT(text, ContainsSubstring(limit.says));
      CHECK(text.find('\n') == std::string::npos);
    }
    std::cout << std::setw(20) << limit.name << std::setw(12) << limit.at_text << std::setw(8) << limit.past_text
              << limit.says << "\n";
  }
}

TEST_CASE("Sizes near the limits have plans or errors, whatever the constraints", "[limits]") {
  const auto sizes = {std::int64_t(1), std::int64_t(127), std::int64_t(1) << 20, two_31 - 4096, two_31 - 1};
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    for (const Constraints& constraints : {Constraints{}, Constraints{.batch_invariant = true}, Constraints{.sms = 7},
                                           Constraints{.workspace_bytes = 0}}) {
      Context context({.device = Device::compile_only,
                       .architecture = architecture,
                       .tuning = Tuning::off,
                       .constraints = constraints});
      for (const std::int64_t m : sizes) {
        for (const std::int64_t n : sizes) {
          for (const std::int64_t k : sizes) {
            const Problem problem{
                .m = m, .n = n, .k = k, .a = {e5m2}, .b = {.type = e5m2, .layout = columns}, .d = {e5m2}};
            Problem half = problem;
            half.a.type = half.b.type = half.d.type = f16;
            for (const Problem& asked : {problem, half}) {
              if (architecture == std::string("sm_80") && asked.a.type == e5m2) continue;
              INFO(to_string(asked) << " on " << architecture);
              try {
                const Plan plan = context.plan(asked);
                CHECK(why_illegal(plan.config, normalise(plan.problem), device_info_for(architecture)) == "");
              } catch (const Error& error) {
                INFO(error.what());
                CHECK((error.code() == ErrorCode::invalid_problem || error.code() == ErrorCode::invalid_option));
                CHECK((double(m) * double(n) >= 0x1p40 || double(m) * double(n) * double(k) >= 0x1p40));
              }
            }
          }
        }
      }
    }
  }
}

// Signed overflow ends constant evaluation: these would not compile.
namespace {

using namespace jitgemm::device;

template <Partition PARTITION>
constexpr bool last_work_is_in_range(const Decomposition& d) {
  Work work{};
  const TileScheduler<PARTITION> list{d, d.ctas - 1};
  long long sum = 0;
  int steps = 0;
  for (bool more = list.first(work); more && steps < 100; more = list.next(work), ++steps) {
    const TileIndex tile = raster(work.tile, d, 0);
    if (tile.m < 0 || tile.m >= d.tiles_m || tile.n < 0 || tile.n >= d.tiles_n || tile.batch < 0 ||
        tile.batch >= d.batch)
      return false;
    if (work.k_begin < 0 || work.k_end > d.k_blocks || work.k_begin >= work.k_end || work.peer < 0 ||
        work.peer >= work.peers)
      return false;
    if (work.peers > 1) sum += slot_of<PARTITION>(d, work.tile, work.peer);
  }
  return steps > 0 && sum >= 0;
}
constexpr int most_tiles = (1 << 30) - 1;  // why_beyond_integers()
static_assert(last_work_is_in_range<Partition::one_tile>({most_tiles, 1, 1, 1 << 27, most_tiles, 0, 1}));
static_assert(last_work_is_in_range<Partition::whole_tiles>({most_tiles, 1, 1, 1 << 27, most_tiles, 0, 1}));
static_assert(last_work_is_in_range<Partition::whole_tiles>({1, most_tiles, 1, 1, 65535, 0, 1}));
static_assert(last_work_is_in_range<Partition::whole_tiles>({1, 1, most_tiles, 1, most_tiles, 0, 1}));
static_assert(last_work_is_in_range<Partition::split_k>({(1 << 24) - 1, 1, 1, 1 << 27, ((1 << 24) - 1) * 64, 0, 64}));
static_assert(last_work_is_in_range<Partition::split_k>({(1 << 24) - 1, 1, 1, 64, 65535, 0, 64}));
static_assert(last_work_is_in_range<Partition::stream_k>({7, 1, 1, (1 << 27) - 1, 65535, 7, 1}));
static_assert(last_work_is_in_range<Partition::stream_k>({most_tiles, 1, 1, 1, 65535, 65534, 1}));
static_assert(last_work_is_in_range<Partition::stream_k>({1, 1, 1, most_tiles, 1, 1, 1}));

}  // namespace
