// What NVRTC makes of gated products in 8 bits, whose rows or blocks of k are scaled: of sizes that served models have.
#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "catch.hpp"
#include "core/problem.hpp"
#include "gated_cases.hpp"
#include "kernels/legality.hpp"
#include "nvrtc.hpp"
#include "plan/ranking.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

struct Layer {
  std::int64_t tokens, width, hidden, experts;  // experts: 0 of a dense layer
};
constexpr std::array layers{Layer{16, 14336, 4096, 0},    Layer{128, 18944, 3584, 0},   Layer{512, 28672, 8192, 0},
                            Layer{4096, 14336, 4096, 0},  Layer{8192, 2048, 7168, 0},   Layer{64, 512, 2048, 0},
                            Layer{1024, 1536, 2048, 0},   Layer{4096, 1000, 4096, 0},   Layer{64, 768, 2048, 128},
                            Layer{4096, 2048, 7168, 256}, Layer{65536, 1408, 2048, 64}, Layer{8192, 7168, 4096, 8}};
constexpr std::array ways{std::array{Scaling::vector, Scaling::vector},
                          std::array{Scaling::block_1x128, Scaling::block_128x128},
                          std::array{Scaling::block_1x128, Scaling::block_1x128}};

NormalProblem problem_of(const Layer& layer, std::array<Scaling, 2> how, Pairing pairs) {
  Problem p{.m = layer.tokens, .n = 2 * layer.width, .k = layer.hidden, .a = {e4m3}, .b = {e4m3, Layout::column_major}};
  p.d = {bf16};
  p.a.scaling = how[0];
  p.b.scaling = how[1];
  if (layer.experts > 0) {
    p.grouping = pairs == Pairing::halves ? Grouping::offsets : Grouping::counts;
    p.batch = layer.experts;
    if (p.grouping == Grouping::counts) p.m = std::max<std::int64_t>(1, p.m / 8);
  }
  p.epilogue.function = define_epilogue(
      parse_epilogue(gated::line_of(pairs) +
                     "__device__ float epilogue(float gate, float up, const Args&, Out&) { return silu(gate) * up; }"));
  return normalise(p);
}

}  // namespace

TEST_CASE("Kernels that the model ranks first for scaled pairs compile with NVRTC and spill nothing",
          "[gated_kernels][nvrtc]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  const RatedDevice h200(device_info_for("sm_90a"));
  std::map<std::string, bool> compiled;
  std::size_t i = 0;
  for (const auto& how : ways)
    for (const Layer& layer : layers) {
      const NormalProblem p = problem_of(layer, how, gated::pairings[i++ % 2]);
      const KernelConfig config = rank(p, h200, 1).front().config;
      if (!compiled.emplace(generate(p, config, h200).text, true).second) continue;
      check_spills_nothing(*backend, p, config);
    }
  CHECK(compiled.size() >= 12);
}

TEST_CASE(
    "The largest kernels of scaled pairs, of halves that begin anywhere too, compile with NVRTC and spill nothing",
    "[gated_kernels][nvrtc]") {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  for (const char* const text :
       {"sm90 256x128x128 stages=3 warps=8 cluster=1x2x1 schedule=persistent grid=132",
        "sm90 256x128x128 stages=3 warps=8 swap_ab=true schedule=persistent grid=132",
        "sm90 192x96x128 stages=3 warps=8 consumers=ping_pong swap_ab=true schedule=persistent grid=132",
        "sm90 64x208x128 stages=3 warps=4 schedule=data_parallel",
        "sm90 192x64x128 stages=3 warps=12 schedule=data_parallel"})
    for (const auto& how : ways)
      for (const std::int64_t width : {2048, 2072}) {
        const NormalProblem p =
            problem_of({4096, width, 7168, 0}, how, width == 2048 ? Pairing::neighbours : Pairing::halves);
        const KernelConfig config = parse_kernel_config(text);
        if (why_illegal(config, p, backend->device()).empty()) check_spills_nothing(*backend, p, config);
      }
}
