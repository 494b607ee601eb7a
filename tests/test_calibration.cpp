// What is measured to calibrate the cost model, and the rates that are found from it. Nothing is measured here: times
// are those of rates that the search does not know.
#include "tune/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "kernels/legality.hpp"
#include "plan/cost_model.hpp"
#include "random.hpp"
#include "tuning_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::WithinAbs;

namespace {

using Samples = std::vector<CalibrationSample>;

/// The device with rates that nothing says but its samples.
RatedDevice with_other_rates(const DeviceInfo& info, Random& random) {
  RatedDevice device(info, info.has_wgmma() ? DeviceRates{} : derived_rates(info));
  for (const auto& [name, rate] : fields_of(device.rates)) {
    *rate *= random.next() % 2 == 0 ? 1.4 : 1 / 1.4;
  }
  return device;
}

RatedDevice with_derived_rates(const DeviceInfo& device) { return {device, derived_rates(device)}; }

/// What `truth` takes for some 150 of the tasks' candidates of a main loop: of each task the first and the last.
Samples samples_of(const RatedDevice& truth, MainLoop main_loop, double noise = 0) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  Samples samples;
  for (const CalibrationTask& task : calibration_tasks(with_derived_rates(truth))) {
    if (task.configs.front().config.main_loop != main_loop) continue;
    const std::size_t count = task.configs.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (i >= 4 && i + 3 < count) continue;
      const KernelConfig& config = task.configs[i].config;
      samples.push_back(
          {task.problem, config, predict_us(config, task.problem, truth) * std::exp(noise * normal(random))});
    }
  }
  return samples;
}

/// Of what the rates choose among the samples of each problem, by what `truth` takes for it: geometric mean.
double regret_of(const DeviceRates& rates, const Samples& samples, const RatedDevice& truth) {
  struct Chosen {
    double predicted = std::numeric_limits<double>::infinity(), us = 0, least = predicted;
  };
  const RatedDevice device(truth, rates);
  std::map<std::string, Chosen> choices;
  for (const CalibrationSample& sample : samples) {
    Chosen& chosen = choices[to_string(sample.problem)];
    const double predicted = predict_us(sample.config, sample.problem, device);
    const double us = predict_us(sample.config, sample.problem, truth);
    if (predicted <= chosen.predicted) chosen.predicted = predicted, chosen.us = us;
    chosen.least = std::min(chosen.least, us);
  }
  double logs = 0;
  for (const auto& [problem, chosen] : choices) logs += std::log(chosen.us / chosen.least);
  return std::exp(logs / double(choices.size()));
}

std::vector<double> values_of(DeviceRates rates) {
  std::vector<double> values;
  for (const auto& [name, rate] : fields_of(rates)) values.push_back(*rate);
  return values;
}

}  // namespace

TEST_CASE("Calibration measures some hundred legal candidates of each main loop", "[calibration]") {
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    const RatedDevice device = with_derived_rates(device_info_for(architecture));
    CAPTURE(architecture);
    const std::vector<CalibrationTask> tasks = calibration_tasks(device);
    std::size_t measurements = 0;
    std::map<MainLoop, std::size_t> of_loop;
    bool unaligned = false, skinny = false, large = false;
    for (const CalibrationTask& task : tasks) {
      CAPTURE(to_string(task.problem));
      CHECK(equal(normalise(task.problem), task.problem));
      CHECK(task.configs.size() >= 2);
      unaligned |= task.problem.a.alignment < 16;
      skinny |= task.problem.m <= 64;
      large |= flops(task.problem) > 1e11;
      std::set<std::string> configs;
      for (const RankedConfig& ranked : task.configs) {
        CAPTURE(to_string(ranked.config));
        CHECK(why_illegal(ranked.config, task.problem, device).empty());
        CHECK(configs.insert(to_string(ranked.config)).second);
        CHECK(ranked.predicted_us == predict_us(ranked.config, task.problem, device));
        ++of_loop[ranked.config.main_loop];
        ++measurements;
      }
    }
    CHECK(unaligned);
    CHECK(skinny);
    CHECK(large);
    CHECK(measurements >= 200);
    CHECK(measurements <= 600);
    CHECK(of_loop[MainLoop::sm80] >= 40);
    CHECK((of_loop[MainLoop::sm90] >= 100) == device.has_wgmma());

    const std::vector<CalibrationTask> again = calibration_tasks(device);
    REQUIRE(again.size() == tasks.size());
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      CHECK(equal(again[i].problem, tasks[i].problem));
      CHECK(std::ranges::equal(again[i].configs, tasks[i].configs,
                               [](const auto& x, const auto& y) { return x.config == y.config; }));
    }
  }
}

TEST_CASE("Calibration finds rates that choose as the device's own do", "[calibration]") {
  CAPTURE(test_seed());
  Random random(test_seed());
  double before = 0, after = 0;
  for (const auto& [architecture, main_loop] : {std::pair("sm_90a", MainLoop::sm90), {"sm_80", MainLoop::sm80}}) {
    for (int trial = 0; trial < 3; ++trial) {
      const RatedDevice truth = with_other_rates(device_info_for(architecture), random);
      const RatedDevice device = with_derived_rates(truth);
      const Samples samples = samples_of(truth, main_loop);
      CAPTURE(architecture, trial, samples.size());
      REQUIRE(samples.size() >= 100);
      const Calibration found = calibrate(samples, device);
      CAPTURE(found.before.regret, found.before.error, found.after.error);
      CHECK_THAT(found.before.regret, WithinAbs(regret_of(device.rates, samples, truth), 1e-9));
      CHECK_THAT(found.after.regret, WithinAbs(regret_of(found.rates, samples, truth), 1e-9));
      CHECK(found.after.regret <= 1.04);  // of 160 draws three were above 1.01, at most 1.032
      CHECK(found.after.error < 0.13);
      CHECK(found.after.error < 0.7 * found.before.error);
      before += std::log(found.before.regret);
      after += std::log(found.after.regret);

      // The other loop's rates, of which nothing is known, stay.
      DeviceRates rates_before = device.rates, rates_after = found.rates;
      const auto of_before = fields_of(rates_before), of_after = fields_of(rates_after);
      const bool hopper = main_loop == MainLoop::sm90;
      for (std::size_t i = 0; i < of_before.size(); ++i) {
        CAPTURE(of_after[i].first);
        CHECK(std::isfinite(*of_after[i].second));
        CHECK(*of_after[i].second > 0);
        if (of_after[i].first.starts_with("sm90.") != hopper) CHECK(*of_after[i].second == *of_before[i].second);
      }
    }
  }
  CHECK(after < 0.5 * before);
}

TEST_CASE("The same samples give the same rates", "[calibration]") {
  Random random(1);
  const RatedDevice truth = with_other_rates(h200, random), device = with_derived_rates(h200);
  Samples samples = samples_of(truth, MainLoop::sm90);
  samples.resize(40);
  const DeviceRates found = calibrate(samples, device).rates;
  CHECK(values_of(found) == values_of(calibrate(samples, device).rates));
  CHECK(values_of(found) != values_of(device.rates));
}

TEST_CASE("Noise of measurements costs calibration little", "[calibration]") {
  CAPTURE(test_seed());
  Random random(test_seed());
  const RatedDevice truth = with_other_rates(h200, random), device = with_derived_rates(h200);
  const Samples samples = samples_of(truth, MainLoop::sm90, 0.05);
  const Calibration found = calibrate(samples, device);
  CAPTURE(found.before.regret, found.before.error, found.after.regret, found.after.error);
  CHECK(found.after.regret <= found.before.regret + 0.01);  // noise alone makes 0.03 of it
  CHECK(found.after.error < found.before.error);
  CHECK(found.after.error > 0.03);  // it has not learnt the noise
  CHECK(found.after.error < 0.12);
  CHECK(regret_of(found.rates, samples, truth) <= 1.02);
}

TEST_CASE("Calibration refuses fewer than three problems with a choice", "[calibration]") {
  const Samples all = samples_of(h200, MainLoop::sm90);
  const RatedDevice device = with_derived_rates(h200);
  /// So many of the first problems' samples.
  const auto first = [&](std::initializer_list<int> counts) {
    Samples samples;
    std::size_t next = 0;
    for (const int count : counts) {
      const Problem& problem = all.at(next).problem;
      for (int i = 0; equal(all.at(next).problem, problem); ++next, ++i) {
        if (i < count) samples.push_back(all[next]);
      }
    }
    return samples;
  };
  for (const Samples& few : {first({}), first({1}), first({5, 5}), first({2, 2, 1}), first({1, 1, 1, 1, 1})}) {
    CAPTURE(few.size());
    CHECK_FALSE(refusal(ErrorCode::invalid_option, [&] { calibrate(few, device); }).empty());
  }
  CHECK(calibrate(first({2, 2, 2}), device).after.regret <= 1.01);
}
