#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/problem.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "nvrtc.hpp"
#include "plan/ranking.hpp"

namespace jitgemm {
using test::no_nvrtc;
using test::nvrtc_for;

namespace {

const RatedDevice h200(device_info_for("sm_90a"));

/// Every nth shape of the corpora: large and small, aligned and not, square, skinny and deep.
std::vector<Problem> shapes(std::size_t count) {
  std::vector<Problem> all;
  for (const char* name : {"streamk_aligned8_300.txt", "streamk_unaligned_100.txt", "fp8_aligned16_100.txt",
                           "llm_decode_49.txt", "seed_squares_31.txt"}) {
    std::ifstream file(std::string(JITGEMM_SOURCE_DIR) + "/tests/corpora/" + name);
    for (Problem p; file >> p.m >> p.n >> p.k;) all.push_back(p);
  }
  std::vector<Problem> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(all.at(i * all.size() / count));
  return chosen;
}

struct Chosen {
  KernelConfig config;
  std::string problem;
  KernelSource source;
};

/// The distinct kernels that the model ranks first for the shapes with these types and layouts, `most` of them.
std::vector<Chosen> ranked_first(Problem types, std::size_t shape_count, std::size_t most) {
  std::map<std::string, Chosen> by_text;
  for (const Problem& shape : shapes(shape_count)) {
    types.m = shape.m, types.n = shape.n, types.k = shape.k;
    const NormalProblem p = normalise(types);
    const KernelConfig config = rank(p, h200, 1).front().config;
    const KernelSource source = generate(p, config, h200);
    by_text.try_emplace(source.text, Chosen{config, to_string(p), source});
  }
  std::vector<Chosen> kernels;
  std::size_t i = 0;
  for (const auto& [text, chosen] : by_text)
    if (i++ * most / by_text.size() == kernels.size()) kernels.push_back(chosen);
  return kernels;
}

void compile_without_spills(const Problem& types) {
  const auto backend = nvrtc_for("sm_90a");
  if (!backend) SKIP(no_nvrtc);
  const std::vector<Chosen> kernels = ranked_first(types, 60, 20);
  REQUIRE(kernels.size() >= 10);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::vector<std::string> wrong;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < kernels.size();) {
      std::string what;
      try {  // ptxas's C75xx, wgmma serialised, is an error
        const KernelBinary binary = backend->compile(kernels[i].source);
        if (binary.spill_bytes != 0) what = "spills " + std::to_string(binary.spill_bytes) + " bytes";
        if (binary.registers == 0) what = "NVRTC does not tell its registers";
      } catch (const Error& error) {
        what = std::string(error.what()) + "\n" + error.log();
      }
      if (what.empty()) continue;
      const std::lock_guard lock(mutex);
      wrong.push_back(kernels[i].problem + " | " + to_string(kernels[i].config) + ": " + what);
    }
  };
  {
    std::jthread other(work);
    work();
  }
  for (const std::string& one : wrong) FAIL_CHECK(one);
}

}  // namespace

TEST_CASE("Kernels that the model ranks first for f16 compile with NVRTC and spill nothing", "[candidates][nvrtc]") {
  compile_without_spills({});
}

TEST_CASE("Kernels that the model ranks first for bf16 compile with NVRTC and spill nothing", "[candidates][nvrtc]") {
  compile_without_spills({.a = {bf16}, .b = {.type = bf16, .layout = Layout::column_major}, .d = {bf16}});
}

TEST_CASE("Kernels that the model ranks first for e4m3 compile with NVRTC and spill nothing", "[candidates][nvrtc]") {
  compile_without_spills({.a = {e4m3}, .b = {.type = e4m3, .layout = Layout::column_major}, .d = {bf16}});
}

}  // namespace jitgemm
