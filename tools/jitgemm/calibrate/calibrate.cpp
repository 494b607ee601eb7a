#include "calibrate/calibrate.hpp"

#include <fmt/core.h>

#include <chrono>

#include "common/options.hpp"
#include "common/progress.hpp"
#include "common/text.hpp"
#include "context_options.hpp"
#include "core/problem.hpp"
#include "jit/kernel_cache.hpp"
#include "jit/kernel_store.hpp"
#include "measure/launch_graph.hpp"
#include "tune/autotuner.hpp"
#include "tune/calibration.hpp"
#include "tune/calibration_file.hpp"
#include "warm/kernels_ahead.hpp"

namespace jitgemm::cli {
namespace {

KernelsAhead::Kernels kernels_of(const std::vector<CalibrationTask>& tasks) {
  KernelsAhead::Kernels kernels;
  for (const CalibrationTask& task : tasks) {
    for (const RankedConfig& ranked : task.configs) kernels.emplace_back(task.problem, ranked.config);
  }
  return kernels;
}

}  // namespace

void calibrate(const ContextOptions& options, bool json) {
  const auto begin = std::chrono::steady_clock::now();
  if (options.device == Device::cuda) make_cuda_current();
  const std::unique_ptr<Backend> backend = make_backend(options);
  const RatedDevice device = rated_device(options, backend->device());
  if (device.emulated) {
    throw Error(ErrorCode::invalid_option,
                "times on the emulator say nothing of a device: calibrate on the GPU that is to be used");
  }
  const auto file = calibration_file(options);
  if (!file) throw Error(ErrorCode::io, "no directory to keep the rates in: set JITGEMM_CACHE_DIR");
  KernelCache cache(cache_options(options));
  KernelStore store(*backend, cache);
  const std::vector<CalibrationTask> tasks = calibration_tasks(device);

  std::vector<CalibrationSample> samples;
  {
    const KernelsAhead ahead(options, describe(device), kernels_of(tasks));
    Progress progress("calibrating");
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const CalibrationTask& task = tasks[i];
      progress.update(int(i), int(tasks.size()), to_string(task.problem));
      const auto result = tune(*backend, store, shape_of(task.problem), task.configs,
                               {.budget_seconds = 2, .candidates = int(task.configs.size())});
      if (!result) continue;
      for (const TunedCandidate& candidate : result->candidates) {
        if (candidate.measured_us > 0) samples.push_back({task.problem, candidate.config, candidate.measured_us});
      }
    }
    progress.hide();
  }
  const Calibration found = jitgemm::calibrate(samples, device);
  add_rates(*file, device, found.rates);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  if (json) {
    nlohmann::ordered_json rates;
    DeviceRates copy = found.rates;
    for (const auto& [name, value] : fields_of(copy)) rates[std::string(name)] = *value;
    return print_json({{"device", device.name},
                       {"samples", samples.size()},
                       {"regret_before", found.before.regret},
                       {"regret", found.after.regret},
                       {"error_before", found.before.error},
                       {"error", found.after.error},
                       {"seconds", seconds},
                       {"file", file->string()},
                       {"rates", rates}});
  }
  fmt::print("device    {}, rates so far: {}\n", device.name, device.rates.origin);
  fmt::print("measured  {} candidates of {} problems, in {}\n", samples.size(), tasks.size(), duration_text(seconds));
  fmt::print("choices   the model's first takes {:.3f} times the best measured, {:.3f} before\n", found.after.regret,
             found.before.regret);
  fmt::print("times     predicted within {:.0f} %, {:.0f} % before\n", 100 * found.after.error,
             100 * found.before.error);
  fmt::print("kept in   {}\n", file->string());
}

}  // namespace jitgemm::cli
