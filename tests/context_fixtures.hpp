#pragma once

#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/problem.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "reference.hpp"
#include "sandbox.hpp"

namespace jitgemm::test {

inline ContextOptions emulator_options(const TemporaryDirectory& cache, std::optional<Tuning> tuning = Tuning::off) {
  return {.device = Device::emulator, .tuning = tuning, .cache_dir = cache.path().string()};
}

/// Measures a few of Hopper's kernels on first use.
inline ContextOptions briefly_tuning(const TemporaryDirectory& cache) {
  ContextOptions options = emulator_options(cache, Tuning::on);
  options.architecture = "sm_90a";
  options.tuning_budget_seconds = 0.05;
  return options;
}

/// Measures as many as a test of what tuning finds needs.
inline ContextOptions tuning_on_emulator(const TemporaryDirectory& cache) {
  ContextOptions options = emulator_options(cache, Tuning::on);
  options.tuning_budget_seconds = 20;
  return options;
}

inline ContextOptions compile_only(const TemporaryDirectory& cache, const std::string& architecture = "sm_80") {
  return {.device = Device::compile_only, .architecture = architecture, .cache_dir = cache.path().string()};
}

/// Host matrices for a problem, 256-byte aligned, D poisoned with NaN.
class HostOperands {
 public:
  explicit HostOperands(const Problem& problem, std::uint64_t seed = 1) : problem_(normalise(problem)) {
    const Problem& p = problem_;
    Random random(seed);
    const auto matrix = [&](std::int64_t rows, std::int64_t columns, Layout layout, std::int64_t ld, DataType type) {
      return filled(random, layout == Layout::row_major ? rows * ld : columns * ld, type);
    };
    operands.a = matrix(p.m, p.k, p.a.layout, p.a.ld, p.a.type);
    operands.b = matrix(p.k, p.n, p.b.layout, p.b.ld, p.b.type);
    operands.d = matrix(p.m, p.n, Layout::row_major, p.d.ld, p.d.type);
    if (reads_c(p)) operands.c = matrix(p.m, p.n, Layout::row_major, p.c.ld, p.d.type);
    if (p.epilogue.bias != Bias::none) operands.bias = filled(random, p.n, p.d.type);
    poison();
  }

  void poison() {
    for (std::int64_t i = 0; i < problem_.m * problem_.d.ld; ++i) {
      store(std::numeric_limits<double>::quiet_NaN(), operands.d, i, problem_.d.type);
    }
  }
  std::string violation(MainLoop main_loop) const {
    return test::violation(reference(problem_, operands, main_loop), problem_, operands.d);
  }

  Operands operands;

 private:
  void* filled(Random& random, std::int64_t elements, DataType type) {
    const std::size_t bytes = (std::size_t(elements) * size_of(type) / 256 + 2) * 256;
    memory_.emplace_back(std::aligned_alloc(256, bytes), std::free);
    for (std::int64_t i = 0; i < elements; ++i) store(2 * random.uniform() - 1, memory_.back().get(), i, type);
    return memory_.back().get();
  }

  Problem problem_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

}  // namespace jitgemm::test
