#include "tune/kernel_cover.hpp"

#include <cmath>
#include <set>

#include "catch.hpp"
#include "jit/source_generator.hpp"
#include "plan/ranking.hpp"
#include "tuning_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

std::vector<CoveredProblem> some_problems() {
  std::vector<CoveredProblem> problems;
  for (const std::int64_t m : {128, 1000, 4096}) {
    for (const std::int64_t n : {256, 4096}) {
      for (const std::int64_t k : {512, 8192}) problems.push_back({shape(m, n, k), h200});
    }
  }
  return problems;
}

/// The least predicted time with one of the first kernels, by brute force.
double regret(const CoveredProblem& p, const KernelCover& cover, std::size_t count) {
  std::set<std::string> kernels;
  for (std::size_t i = 0; i < count; ++i) {
    kernels.insert(generate(cover.kernels[i].problem, cover.kernels[i].config, p.device).text);
  }
  const auto ranked = rank(p.problem, p.device);
  for (const RankedConfig& x : ranked) {
    if (kernels.contains(generate(p.problem, x.config, p.device).text)) return x.predicted_us / ranked[0].predicted_us;
  }
  return 0;
}

}  // namespace

TEST_CASE("A problem with constraints is covered by a kernel that keeps to them", "[kernel_cover][constraints]") {
  CoveredProblem p{shape(128, 256, 8192), h200};
  CHECK(cover_kernels({p}, 1).kernels.at(0).config.cluster_k > 1);
  p.constraints.batch_invariant = true;
  CHECK(cover_kernels({p}, 1).kernels.at(0).config.cluster_k == 1);
}

TEST_CASE("Two configurations have one identity where they have one source", "[kernel_cover]") {
  for (const NormalProblem& problem : {shape(1024, 1024, 1024), shape(100, 101, 103)}) {
    const auto configs = rank(problem, h200);
    std::set<std::string> identities, texts;
    for (std::size_t i = 0; i < configs.size(); i += 1 + configs.size() / 100) {
      identities.insert(kernel_identity(problem, configs[i].config, h200));
      texts.insert(generate(problem, configs[i].config, h200).text);
    }
    CHECK(identities.size() == texts.size());
    CHECK(identities.size() > 1);
  }
  const KernelConfig config = rank(shape(512, 512, 512), h200, 1).at(0).config;
  KernelConfig other_grid = config;
  other_grid.schedule = Schedule::split_k, other_grid.splits = 2;
  KernelConfig another_grid = other_grid;
  another_grid.splits = 4;
  CHECK(kernel_identity(shape(512, 512, 512), other_grid, h200) ==
        kernel_identity(shape(512, 512, 512), another_grid, h200));
  CHECK(kernel_identity(shape(512, 512, 512), other_grid, h200) != kernel_identity(shape(512, 512, 512), config, h200));
  CHECK(kernel_identity(shape(512, 512, 512), config, h200) == kernel_identity(shape(640, 512, 1024), config, h200));
  const NormalProblem with_bias =
      shape_of(normalise({.m = 512, .n = 512, .k = 512, .epilogue = {.bias = Bias::along_n}}));
  CHECK(kernel_identity(shape(512, 512, 512), config, h200) != kernel_identity(with_bias, config, h200));
}

TEST_CASE("Each further kernel lowers the regret, and enough of them leave none", "[kernel_cover]") {
  const auto problems = some_problems();
  const KernelCover cover = cover_kernels(problems, 1000);
  REQUIRE(cover.kernels.size() == cover.quality.size());
  CHECK(cover.needed > 1);
  CHECK(cover.needed <= problems.size());
  CHECK(cover.kernels.size() < 1000);  // it stops when nothing is gained
  for (std::size_t i = 1; i < cover.quality.size(); ++i) {
    const auto &now = cover.quality[i], &before = cover.quality[i - 1];
    CHECK(now.without_kernel <= before.without_kernel);
    if (now.without_kernel == before.without_kernel) CHECK(now.geomean < before.geomean);
  }
  CHECK(cover.quality.back().without_kernel == 0);
  CHECK(cover.quality.back().geomean == 1);
  CHECK(cover.quality.back().p95 == 1);
  for (const CoverKernel& kernel : cover.kernels) CHECK(why_illegal(kernel.config, kernel.problem, h200).empty());
}

TEST_CASE("The regret of a set is that of its kernels", "[kernel_cover]") {
  auto problems = some_problems();
  problems.resize(4);
  const KernelCover cover = cover_kernels(problems, 2);
  REQUIRE(cover.kernels.size() == 2);
  for (const std::size_t count : {1, 2}) {
    double sum = 0;
    for (const CoveredProblem& p : problems) sum += std::log(regret(p, cover, count));
    CHECK_THAT(std::exp(sum / 4), Catch::Matchers::WithinAbs(cover.quality[count - 1].geomean, 1e-9));
  }
}

TEST_CASE("What was measured goes before what is predicted", "[kernel_cover]") {
  const auto ranked = rank(shape(1024, 1024, 1024), h200);
  const KernelConfig slow = ranked.back().config;
  const std::vector<CoveredProblem> problems{{shape(1024, 1024, 1024), h200, {{ranked[0].config, 20}, {slow, 10}}}};
  const KernelCover cover = cover_kernels(problems, 1);
  CHECK(cover.needed == 1);
  REQUIRE(cover.kernels.size() == 1);
  CHECK(cover.quality[0].geomean == 1);
}

TEST_CASE("Problems of other kinds are served first of all", "[kernel_cover]") {
  auto problems = some_problems();
  problems.push_back({shape_of(normalise({.m = 512, .n = 512, .k = 512, .a = {f64}, .b = {f64}, .d = {f64}})), h200});
  const KernelCover cover = cover_kernels(problems, 2);
  CHECK(cover.quality[0].without_kernel == 1);
  CHECK(cover.quality[1].without_kernel == 0);
}
