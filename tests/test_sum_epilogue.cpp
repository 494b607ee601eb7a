// The kernel that adds up what ranks have of a product, of several sources, as peers' memory will be.
#include <cmath>

#include "catch.hpp"
#include "context_fixtures.hpp"
#include "context_internals.hpp"
#include "errors.hpp"
#include "jit/source_generator.hpp"
#include "parallel/sum_epilogue.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

/// D of a sum of matrices whose element i is from(source, i), of rows that are 20 elements apart.
std::vector<float> sum_of(Context& context, const Problem& problem, int source_count,
                          const std::function<double(int, int)>& from) {
  constexpr int ld = 20;
  const NormalProblem p = normalise(problem);
  std::vector<std::vector<float>> memory(std::size_t(source_count), std::vector<float>(std::size_t(p.m * ld), NAN));
  std::vector<const void*> sources;
  for (int source = 0; source < source_count; ++source) {
    for (int i = 0; i < p.m; ++i)
      for (int j = 0; j < p.n; ++j)
        memory[std::size_t(source)][std::size_t(i * ld + j)] = float(from(source, int(i * p.n + j)));
    sources.push_back(memory[std::size_t(source)].data());
  }
  std::vector<float> d(std::size_t(p.m * p.n), NAN), c(std::size_t(p.m * p.n), 4);
  const SumEpilogue sum(ContextInternals::backend(context), ContextInternals::store(context), p, ld);
  sum.enqueue(p, {.c = c.data(), .d = d.data()}, sources, ld, nullptr);
  return d;
}

}  // namespace

TEST_CASE("Sources are added in their order, each sum rounded, and then the epilogue is applied",
          "[parallel][emulated]") {
  const TemporaryDirectory cache;
  Context context(emulator_options(cache));
  for (const int n : {16, 17}) {
    const Problem problem{.m = 5, .n = n, .a = {f32}, .b = {f32}, .d = {f32}, .alpha = 0.5, .beta = 2};
    for (const int count : {1, 2, 3, 8}) {
      CAPTURE(n, count);
      const auto from = [](int source, int i) {
        return source == 0 ? 0x1p25 : source == 1 ? i : -0x1p25 / (source - 1);
      };
      const std::vector<float> d = sum_of(context, problem, count, from);
      for (int i = 0; i < 5 * n; ++i) {
        float sum = 0;
        for (int source = 0; source < count; ++source) sum += float(from(source, i));
        REQUIRE(d[std::size_t(i)] == std::fma(0.5f, sum, 8.0f));
      }
    }
  }
  CHECK(error_of([&] { sum_of(context, {.m = 1, .n = 1, .d = {f32}}, 9, [](int, int) { return 0; }); }).code() ==
        ErrorCode::internal);
}

TEST_CASE("The sum's source is one that the library makes now, whatever its epilogue", "[parallel]") {
  const DeviceInfo device = device_info_for("sm_90a");
  KernelSource source =
      generate_sum_epilogue(normalise({.m = 4, .n = 4, .epilogue = {.activation = Activation::silu}}), true, device);
  CHECK(source.entry == "sum_epilogue_f16");
  CHECK(is_current(source));
  source.text += " ";
  CHECK_FALSE(is_current(source));
  CHECK(generate_sum_epilogue(normalise({.a = {e4m3}, .b = {e4m3}, .d = {e4m3}}), false, device).entry ==
        "sum_epilogue_bf16_e4m3");
}
