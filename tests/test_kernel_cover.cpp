#include "tune/kernel_cover.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "catch.hpp"
#include "jit/source_generator.hpp"
#include "kernels/launch_shape.hpp"
#include "plan/candidates.hpp"
#include "plan/cost_model.hpp"
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

/// The least predicted time with one of the first kernels, by brute force: over all that the planner ranks, and over
/// the grids and splits of those kernels.
double regret(const CoveredProblem& p, const KernelCover& cover, std::size_t count) {
  std::set<std::string> kernels;
  double least = HUGE_VAL;
  for (std::size_t i = 0; i < count; ++i) {
    kernels.insert(generate(cover.kernels[i].problem, cover.kernels[i].config, p.device).text);
    for (const KernelConfig& config : refits(cover.kernels[i].config, p.problem, p.device))
      least = std::min(least, predict_us(config, p.problem, p.device));
  }
  const auto ranked = rank(p.problem, p.device);
  for (const RankedConfig& x : ranked) {
    if (kernels.contains(generate(p.problem, x.config, p.device).text)) least = std::min(least, x.predicted_us);
  }
  return least / ranked[0].predicted_us;
}

}  // namespace

TEST_CASE("A problem with constraints is covered by a kernel that keeps to them", "[kernel_cover][constraints]") {
  CoveredProblem p{shape(128, 256, 8192), h200};
  CHECK(cover_kernels({p}, {.sizes = {1}}).kernels.at(0).config.cluster_k > 1);
  p.constraints.batch_invariant = true;
  CHECK(cover_kernels({p}, {.sizes = {1}}).kernels.at(0).config.cluster_k == 1);
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
  const KernelCover cover = cover_kernels(problems, {.sizes = {1000}});
  REQUIRE(cover.kernels.size() == cover.quality.size());
  CHECK(cover.needed > 1);
  CHECK(cover.needed <= problems.size());
  CHECK(cover.kernels.size() < 1000);  // it stops when nothing is gained
  for (std::size_t i = 1; i < cover.quality.size(); ++i) {
    const auto &now = cover.quality[i], &before = cover.quality[i - 1];
    CHECK(now.without_kernel <= before.without_kernel);
    if (now.without_kernel == before.without_kernel) CHECK(now.geomean < before.geomean * (1 + 1e-9));
  }
  CHECK(cover.quality.back().without_kernel == 0);
  CHECK(cover.quality.back().geomean == 1);
  CHECK(cover.quality.back().p95 == 1);
  for (const CoverKernel& kernel : cover.kernels) CHECK(why_illegal(kernel.config, kernel.problem, h200).empty());
}

TEST_CASE("The regret of a set is that of its kernels", "[kernel_cover]") {
  auto problems = some_problems();
  problems.resize(4);
  const KernelCover cover = cover_kernels(problems, {.sizes = {2}});
  REQUIRE(cover.kernels.size() == 2);
  for (const std::size_t count : {1, 2}) {
    double sum = 0;
    for (const CoveredProblem& p : problems) sum += std::log(regret(p, cover, count));
    CHECK_THAT(std::exp(sum / 4), Catch::Matchers::WithinAbs(cover.quality[count - 1].geomean, 1e-6));
  }
}

TEST_CASE("What was measured goes before what is predicted", "[kernel_cover]") {
  const auto ranked = rank(shape(1024, 1024, 1024), h200);
  const KernelConfig slow = ranked.back().config;
  const std::vector<CoveredProblem> problems{{shape(1024, 1024, 1024), h200, {{ranked[0].config, 20}, {slow, 10}}}};
  const KernelCover cover = cover_kernels(problems, {.sizes = {1}});
  CHECK(cover.needed == 1);
  REQUIRE(cover.kernels.size() == 1);
  CHECK(cover.quality[0].geomean == 1);
}

TEST_CASE("Where what was measured alone counts, a kernel serves no problem that it was not timed for",
          "[kernel_cover]") {
  const NormalProblem one = shape(1024, 1024, 1024), other = shape(2048, 1024, 1024);
  const auto ranked = rank(one, h200);
  const auto second = std::find_if(ranked.begin(), ranked.end(), [&](const RankedConfig& x) {
    return compiled_part(x.config) != compiled_part(ranked[0].config) && why_illegal(x.config, other, h200).empty();
  });
  REQUIRE(second != ranked.end());
  const std::vector<CoveredProblem> problems{{one, h200, {{ranked[0].config, 10}, {second->config, 12}}},
                                             {other, h200, {{second->config, 20}}}};
  const KernelCover cover = cover_kernels(problems, {.sizes = {1, 2}, .measured_only = true});
  REQUIRE(cover.kernels.size() == 2);
  CHECK(compiled_part(cover.kernels[0].config) == compiled_part(second->config));  // which serves both
  CHECK(cover.quality[0].without_kernel == 0);
  CHECK_THAT(cover.quality[0].geomean, Catch::Matchers::WithinRel(std::sqrt(1.2), 1e-6));
  CHECK(cover.quality[1].geomean == 1);
}

TEST_CASE("What the cost model would choose is scored by what was measured of it", "[kernel_cover]") {
  const NormalProblem problem = shape(1024, 1024, 1024);
  const auto ranked = rank(problem, h200);
  // Another kernel than the first one's: what is measured as fastest, which the model does not rank first.
  const auto second = std::find_if(ranked.begin(), ranked.end(), [&](const RankedConfig& x) {
    return x.predicted_us > ranked[0].predicted_us && compiled_part(x.config) != compiled_part(ranked[0].config);
  });
  REQUIRE(second != ranked.end());
  const double us = ranked[0].predicted_us;
  const KernelCover cover =
      cover_kernels({{problem, h200, {{ranked[0].config, 1.3 * us}, {second->config, us}}}}, {.sizes = {1}});
  REQUIRE(cover.kernels.size() == 1);
  CHECK(compiled_part(cover.kernels[0].config) == compiled_part(second->config));
  CHECK(cover.quality[0].geomean == 1);
  CHECK(cover.quality[0].chosen_geomean >= 1);
  CHECK(cover.quality[0].chosen_geomean < 1.3);
}

TEST_CASE("Corpora weigh the same however many problems they have, and are told of apart", "[kernel_cover]") {
  std::vector<CoveredProblem> problems;
  for (int i = 0; i < 20; ++i) problems.push_back({shape(4096, 4096, 1024 + 64 * i), h200});
  problems.push_back({shape(16, 4096, 8192), h200, {}, {}, 1});
  const KernelCover together = cover_kernels(problems, {.sizes = {1}});
  REQUIRE(together.quality_of_corpus.size() == 2);
  const double few = std::log(together.quality_of_corpus[1][0].geomean);
  for (CoveredProblem& p : problems) p.corpus = 0;
  const KernelCover as_one = cover_kernels(problems, {.sizes = {1}});
  REQUIRE(as_one.quality_of_corpus.size() == 1);
  CHECK(few < std::log(regret(problems.back(), as_one, 1)));
}

TEST_CASE("With any types, kernels that differ in types and layouts alone are one", "[kernel_cover]") {
  const Problem f16_nn{.m = 1024, .n = 1024, .k = 1024};
  Problem bf16_nn = f16_nn;
  bf16_nn.a.type = bf16_nn.b.type = bf16_nn.d.type = bf16;
  const std::vector<CoveredProblem> problems{{shape_of(normalise(f16_nn)), h200}, {shape_of(normalise(bf16_nn)), h200}};
  const KernelCover apart = cover_kernels(problems, {.sizes = {1}});
  CHECK(apart.quality[0].without_kernel == 1);
  CHECK(apart.needed == 2);
  const KernelCover one = cover_kernels(problems, {.sizes = {1}, .any_types = true});
  CHECK(one.quality[0].without_kernel == 0);
  CHECK(one.quality[0].geomean == 1);
  CHECK(one.needed == 1);
}

TEST_CASE("Problems of other kinds are served first of all", "[kernel_cover]") {
  auto problems = some_problems();
  problems.push_back({shape_of(normalise({.m = 512, .n = 512, .k = 512, .a = {f64}, .b = {f64}, .d = {f64}})), h200});
  const KernelCover cover = cover_kernels(problems, {.sizes = {2}});
  CHECK(cover.quality[0].without_kernel == 1);
  CHECK(cover.quality[1].without_kernel == 0);
}
