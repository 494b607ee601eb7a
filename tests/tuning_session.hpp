#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "core/problem.hpp"
#include "fake_backend.hpp"
#include "jit/kernel_store.hpp"
#include "sandbox.hpp"
#include "tune/autotuner.hpp"

namespace jitgemm::test {

inline const NormalProblem problem = normalise({.m = 48, .n = 40, .k = 64, .d = {f32}});

/// Configurations of three kernels; the model expects them to be the faster the earlier they come.
inline const std::vector<RankedConfig> ranked{
    {parse_kernel_config("sm80 64x64x64 group_m=8 stages=4 warps=4 schedule=data_parallel"), 10},
    {parse_kernel_config("sm80 32x64x32 group_m=8 stages=5 warps=2 schedule=data_parallel"), 11},
    {parse_kernel_config("sm80 64x32x32 group_m=8 stages=5 warps=2 schedule=data_parallel"), 12}};

/// A tuning session on a fake device, with a kernel cache of its own.
struct Session {
  explicit Session(FakeBackend::Behaviour behaviour)
      : backend(std::move(behaviour)), cache({.directory = directory.path()}), store(backend, cache) {}
  std::optional<TuneResult> run(const NormalProblem& what = problem,
                                const std::vector<RankedConfig>& choices = ranked) {
    return tune(backend, store, what, choices, options);
  }

  TemporaryDirectory directory;
  CapturedLog log;
  FakeBackend backend;
  KernelCache cache;
  KernelStore store;
  TuneOptions options{.budget_seconds = 30};
};

/// A time for each of `ranked`.
inline auto times(std::vector<double> us) {
  return [us](const KernelConfig& config, int) {
    for (std::size_t i = 0; i < ranked.size(); ++i) {
      if (ranked[i].config == config) return us[i];
    }
    throw std::logic_error("unknown " + to_string(config));
  };
}

}  // namespace jitgemm::test
