#include "tune/sampler.hpp"

#include <algorithm>

#include "core/groups.hpp"
#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "util/log.hpp"

namespace jitgemm {
namespace {

// Of one sample. Kernels that fill the device are timed for as long as it takes to meet the power limit that they will
// live under.
constexpr double sample_us = 400, long_sample_us = 2000, long_kernel_us = 60;
constexpr int first_launches = 4, most_launches = 64;  // of a sample
// Half of them back to back, as many as it takes to see what launches that start early do to each other in the long
// run: kernels of clusters that leave half the SMs idle come to sit where they share bandwidth (tools/results/NOTES.md,
// 45).
constexpr int lasting_launches = 32;

}  // namespace

Sampler::Sampler(Backend& backend, const NormalProblem& problem, std::size_t workspace_bytes, int counters)
    : backend_(backend),
      problem_(problem),
      scratch_(backend, problem, workspace_bytes, counters),
      timer_(backend),
      encode_([this](const TensorMapSpec& spec) { return backend_.encode_tensor_map(spec); }) {
  if (!backend.device().emulated) time_neighbour();
}

void Sampler::run(const Runnable& runnable) {
  scratch_.zero_counters();  // one that failed may have left some
  launch_call(runnable, 0, Distribution::equal, timer_.stream());
  backend_.synchronize(timer_.stream());
}

void Sampler::prepare(Runnable& runnable, double expected_us) {
  if (backend_.device().emulated) return record(runnable, 1);
  const int fewest = has_groups(problem_) ? 2 : 1;
  const auto launches_within = [](double us, double once_us) { return int(us / std::max(once_us, 0.1)); };
  const auto record_some = [&](int launches, double once_us) {
    record(runnable, launches < 2 ? launches : launches / 2 * 2);
    runnable.about_us = runnable.launches * once_us;
  };
  record_some(std::clamp(launches_within(long_sample_us, expected_us), fewest, first_launches), expected_us);
  sample(runnable);  // the first launches of a kernel are slower
  const double once_us = sample(runnable);
  const int usual = launches_within(once_us > long_kernel_us ? long_sample_us : sample_us, once_us);
  const int lasting = std::min(lasting_launches, launches_within(long_sample_us, once_us));
  record_some(std::clamp(std::max(usual, lasting), fewest, most_launches), once_us);
}

double Sampler::sample(const Runnable& runnable) {
  const double all_us = time_us(*runnable.recording, runnable.about_us);
  return std::max(all_us - runnable.neighbours * neighbour_us_, 0.0) / runnable.launches;
}

void Sampler::record(Runnable& runnable, int launches) {
  runnable.launches = launches;
  runnable.neighbours = neighbours_ ? launches / 2 : 0;
  const int first_set = next_set();
  const Ready& call = runnable;  // a copy of its own, as a runnable may move
  runnable.recording = backend_.record([this, call, launches, first_set](Stream stream) {
    for (int i = 0; i < launches; ++i) {
      if (neighbours_ && i >= launches - launches / 2) backend_.launch_neighbour(stream);
      // Those of a half, or of all where there is one, come with both.
      const bool skewed = i % 2 == 1;
      launch_call(call, (first_set + i) % scratch_.sets(), skewed ? Distribution::zipf : Distribution::uniform, stream);
    }
  });
  set_ = (first_set + launches - 1) % scratch_.sets();
}

void Sampler::time_neighbour() {
  try {
    neighbours_ = backend_.record([this](Stream stream) {
      for (int i = 0; i < most_launches; ++i) backend_.launch_neighbour(stream);
    });
    time_us(*neighbours_, 0);  // the first launches of a kernel are slower
    neighbour_us_ = time_us(*neighbours_, 0) / most_launches;
  } catch (const Error& error) {
    neighbours_.reset();
    logger().warn("tuning of {} goes without another's kernel between its calls: {}", to_string(problem_),
                  error.what());
  }
}

/// Behind a replay that does not count, or, of a long one, behind neighbours.
double Sampler::time_us(Recording& recording, double about_us) {
  const Stream stream = timer_.stream();
  const auto all = [&] { recording.replay(stream); };
  if (backend_.device().emulated) return timer_.time_us(all);
  const bool is_long = about_us >= long_sample_us / 2;
  Recording& filler = neighbours_ ? *neighbours_ : recording;
  const auto lead = [&](int more) {
    for (int i = is_long ? -1 : 0; i < more; ++i) filler.replay(stream);
    if (!is_long) recording.replay(stream);
  };
  return timer_.time_us_behind(lead, all);
}

void Sampler::launch_call(const Ready& ready, int set, Distribution distribution, Stream stream) {
  for_each_step(ready, problem_, scratch_.operands(set, distribution), scratch_.workspace(), encode_,
                [&](const Step& step) { launch(backend_, step, stream); });
}

}  // namespace jitgemm
