#include "tune/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "plan/cost_model.hpp"
#include "plan/family.hpp"

namespace jitgemm {
namespace {

constexpr int first_choices = 10, drawn_choices = 3, choices_of_other_loops = 8;
constexpr double worth_a_look = 2;  // times the best predicted, of those drawn

std::vector<NormalProblem> problems_for(const DeviceInfo& device) {
  struct Size {
    std::int64_t m, n, k;
  };
  std::vector<NormalProblem> problems;
  const auto add = [&](std::initializer_list<Size> sizes, Problem like) {
    for (const Size& size : sizes) {
      like.m = size.m, like.n = size.n, like.k = size.k;
      problems.push_back(normalise(like));
    }
  };
  add({{256, 256, 256},
       {512, 512, 512},
       {1024, 1024, 1024},
       {2048, 2048, 2048},
       {4096, 4096, 4096},
       {328, 1208, 2000},
       {1320, 520, 4104},
       {200, 6000, 800},
       {3000, 3000, 600},
       {128, 2048, 8192},
       {5000, 1000, 3000},
       {7000, 3000, 1200},
       {640, 640, 6400},
       {1800, 1800, 1800}},
      {});
  add({{501, 1003, 777}, {2047, 1999, 1501}, {151, 3001, 2003}},
      {.a = {.alignment = 2}, .b = {.alignment = 2}, .c = {.alignment = 2}, .d = {.alignment = 2}});
  add({{16, 4096, 4096}, {64, 8192, 2048}, {4, 2112, 7168}, {128, 7168, 4096}},
      {.a = {bf16}, .b = {.type = bf16, .layout = Layout::column_major}, .d = {bf16}});
  if (device.compute_capability >= 89) {
    add({{1024, 1024, 1024}, {4096, 2048, 2048}, {512, 4096, 1024}},
        {.a = {e4m3},
         .b = {.type = e4m3, .layout = Layout::column_major},
         .d = {bf16},
         .accumulation = Accumulation::promoted});
  }
  return problems;
}

/// The samples, as the search needs them.
class Samples {
 public:
  explicit Samples(const std::vector<CalibrationSample>& samples) : samples_(samples) {
    std::map<std::string, std::size_t> of_problem;
    for (const CalibrationSample& sample : samples) {
      const std::size_t problem = of_problem.try_emplace(to_string(sample.problem), of_problem.size()).first->second;
      problem_of_.push_back(problem);
      least_.resize(of_problem.size(), std::numeric_limits<double>::infinity());
      count_.resize(of_problem.size());
      least_[problem] = std::min(least_[problem], sample.us);
      ++count_[problem];
    }
  }
  std::size_t problems_with_a_choice() const {
    return std::size_t(std::ranges::count_if(count_, [](int count) { return count > 1; }));
  }

  /// The larger, the worse. The expected regret of a choice that takes what is predicted to be 1.5 % slower with 1 / e
  /// of the best's weight, so that it changes smoothly with the rates, and the errors.
  double loss(const RatedDevice& device) {
    predict_all(device);
    std::vector<double> weights(least_.size()), regrets(least_.size());
    double errors = 0, error_weights = 0;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const std::size_t problem = problem_of_[i];
      const double slower = std::log(samples_[i].us / least_[problem]);
      const double weight = std::exp(-std::log(predicted_[i] / best_predicted_[problem]) / 0.015);
      weights[problem] += weight;
      regrets[problem] += weight * slower;
      const double error = std::clamp(std::log(predicted_[i] / samples_[i].us), -1., 1.);
      const double matters = slower < std::log(1.3) ? 1 : slower < std::log(1.6) ? 0.4 : 0.1;
      errors += matters * error * error;
      error_weights += matters;
    }
    double loss = errors / error_weights;
    for (std::size_t problem = 0; problem < least_.size(); ++problem) {
      const double regret = regrets[problem] / weights[problem];
      loss += (regret + 1.5 * regret * regret) / double(least_.size());
    }
    return loss;
  }

  CalibrationFit fit(const RatedDevice& device) {
    predict_all(device);
    std::vector<double> chosen(least_.size());
    double errors = 0, count = 0, regrets = 0;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const std::size_t problem = problem_of_[i];
      if (predicted_[i] == best_predicted_[problem]) chosen[problem] = samples_[i].us;
      if (samples_[i].us > 1.4 * least_[problem]) continue;
      errors += std::pow(std::log(predicted_[i] / samples_[i].us), 2);
      ++count;
    }
    for (std::size_t problem = 0; problem < least_.size(); ++problem)
      regrets += std::log(chosen[problem] / least_[problem]);
    return {std::exp(regrets / double(least_.size())), std::sqrt(errors / count)};
  }

 private:
  void predict_all(const RatedDevice& device) {
    best_predicted_.assign(least_.size(), std::numeric_limits<double>::infinity());
    predicted_.resize(samples_.size());
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      predicted_[i] = predict_us(samples_[i].config, samples_[i].problem, device);
      best_predicted_[problem_of_[i]] = std::min(best_predicted_[problem_of_[i]], predicted_[i]);
    }
  }

  const std::vector<CalibrationSample>& samples_;
  std::vector<std::size_t> problem_of_;
  std::vector<int> count_;
  std::vector<double> least_, predicted_, best_predicted_;
};

/// Random search with steps that shrink while nothing improves, and grow again from time to time.
void search(const std::vector<double*>& values, const std::function<double()>& loss) {
  constexpr int steps = 5000;
  constexpr double largest_step = 0.4, least_step = 0.02;
  // Towards where it started, for rates that the samples say nothing of.
  std::vector<double> start;
  for (const double* value : values) start.push_back(*value);
  const auto total = [&] {
    double away = 0;
    for (std::size_t i = 0; i < values.size(); ++i) away += std::pow(std::log(*values[i] / start[i]), 2);
    return loss() + 0.002 * away;
  };
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  double least = total(), step = 0.2;
  for (int i = 0; i < steps; ++i) {
    const int changes = std::array{1, 1, 2, 3}[random() % 4];
    std::vector<std::pair<double*, double>> undo;
    for (int change = 0; change < changes; ++change) {
      double* const value = values[random() % values.size()];
      undo.emplace_back(value, *value);
      *value *= std::exp(step * normal(random));
    }
    if (const double now = total(); now < least) {
      least = now;
      step = std::min(largest_step, 1.1 * step);
      continue;
    }
    for (auto change = undo.rbegin(); change != undo.rend(); ++change) *change->first = change->second;
    step = std::max(least_step, 0.99 * step);
    if (step == least_step && i % 60 == 0) step = 0.25;
  }
}

}  // namespace

std::vector<CalibrationTask> calibration_tasks(const RatedDevice& device) {
  std::vector<CalibrationTask> tasks;
  std::mt19937 random(1);
  const std::vector<NormalProblem> problems = problems_for(device);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    CalibrationTask task{problems[i], rank(problems[i], device, first_choices)};
    if (task.configs.empty()) continue;
    const auto add = [&](const RankedConfig& ranked) {
      const bool known = std::ranges::any_of(task.configs, [&](const auto& c) { return c.config == ranked.config; });
      if (!known) task.configs.push_back(ranked);
      return !known;
    };
    std::vector<RankedConfig> all = rank(problems[i], device);
    const MainLoop main_loop = task.configs.front().config.main_loop;
    const double limit = worth_a_look * task.configs.front().predicted_us;
    std::vector<RankedConfig> others, of_other_loops;
    for (const RankedConfig& ranked : all) {
      if (ranked.config.main_loop != main_loop)
        of_other_loops.push_back(ranked);
      else if (ranked.predicted_us < limit)
        others.push_back(ranked);
    }
    std::shuffle(others.begin(), others.end(), random);
    for (std::size_t j = 0, added = 0; j < others.size() && added < drawn_choices; ++j) added += add(others[j]);
    tasks.push_back(std::move(task));
    if (i % 2 == 0 && problems[i].a.type == f16 && !of_other_loops.empty()) {
      of_other_loops.resize(std::min<std::size_t>(of_other_loops.size(), choices_of_other_loops));
      tasks.push_back({problems[i], std::move(of_other_loops)});
    }
  }
  return tasks;
}

Calibration calibrate(const std::vector<CalibrationSample>& samples, const RatedDevice& device) {
  RatedDevice fitted = device;
  Calibration result;
  // The loop that decides most choices says how good the fit is.
  bool any = false;
  for (const PlanFamily* family : plan_families) {
    std::vector<CalibrationSample> of_family;
    std::ranges::copy_if(samples, std::back_inserter(of_family),
                         [&](const CalibrationSample& sample) { return sample.config.main_loop == family->main_loop; });
    Samples some(of_family);
    if (some.problems_with_a_choice() < 3) continue;
    if (!any) result.before = some.fit(fitted);
    const std::vector<double*> values = family->fitted_rates(fitted.rates);
    search(values, [&] { return some.loss(fitted); });
    if (!any) result.after = some.fit(fitted);
    any = true;
  }
  if (!any) {
    throw Error(ErrorCode::invalid_option,
                "too few measurements to calibrate with; JITGEMM_LOG=info says why candidates were skipped");
  }
  result.rates = fitted.rates;
  return result;
}

}  // namespace jitgemm
