#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/problem.hpp"
#include "gemm_runs.hpp"
#include "jitgemm/error.hpp"
#include "random.hpp"
#include "reference.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

/// A CUDA device that can run the main loop, or why there is none.
std::optional<GemmDevice> cuda_device(std::string& why_not, MainLoop main_loop = MainLoop::sm80) {
  try {
    GemmDevice device(GemmDevice::cuda());
    const std::string architecture = device.context().device().architecture;
    if (main_loop == MainLoop::sm80 || architecture == "sm_90a") return device;
    why_not = "the device is " + architecture + ", and wgmma needs sm_90a";
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_device) throw;
    why_not = std::string("no CUDA device: ") + error.what();
  }
  return std::nullopt;
}

void run_pairwise_on_gpu(GemmDevice& device, MainLoop main_loop) {
  std::vector<GemmCase> cases = pairwise_cases(main_loop, 3);
  for (const GemmCase& gemm : layout_cases(main_loop)) cases.push_back(gemm);
  device.compile(cases);
  run_all({&device}, cases);
  if (main_loop == MainLoop::sm80) run_all({&device}, cases_without_product());
  propagates_nan_and_infinity(device, main_loop);
}

void repeats_bit_for_bit(GemmDevice& device, MainLoop main_loop) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  for (KernelConfig config : split_schedules(main_loop)) {
    for (const int larger : {1, main_loop == MainLoop::sm80 ? 6 : 3}) {  // a few blocks, and the whole device
      if (larger > 1 && config.grid > 0) config.grid = device.context().device().sm_count - 5;
      Problem problem = split_problem(config);
      problem.m *= larger;
      problem.n *= larger;
      problem.k *= larger;
      const GemmCase gemm = plain_case(problem, config);
      const GemmInputs inputs = make_inputs(gemm, Fill::normal, test_seed());
      const std::vector<char> expected = device.run(gemm, inputs);
      INFO(to_string(gemm));
      REQUIRE(check(gemm, inputs, expected) == "");
      for (int repeat = 0; repeat < 200; ++repeat) REQUIRE(device.run(gemm, inputs) == expected);
    }
  }
}

/// Integers bit for bit. With other inputs a GPU's tensor cores round sums in their own way, so that each side is held
/// to the contract instead.
void agrees_with_emulator(GemmDevice& gpu, MainLoop main_loop) {
  GemmDevice emulator(GemmDevice::emulator());
  std::vector<GemmCase> cases;
  for (const GemmCase& gemm : pairwise_cases(main_loop, 1)) {
    if (cases.size() < 24) cases.push_back(gemm);
  }
  gpu.compile(cases);
  emulator.compile(cases);
  for (const GemmCase& gemm : cases) {
    INFO(to_string(gemm) << ", JITGEMM_TEST_SEED=" << test_seed());
    const GemmInputs integers = make_inputs(gemm, Fill::integers, test_seed());
    if (exact_with_integers(gemm)) CHECK(gpu.run(gemm, integers) == emulator.run(gemm, integers));
    const GemmInputs normal = make_inputs(gemm, Fill::normal, test_seed());
    CHECK(check(gemm, normal, gpu.run(gemm, normal)) == "");
    CHECK(check(gemm, normal, emulator.run(gemm, normal)) == "");
  }
}

std::vector<Problem> corpus(const std::string& name) {
  std::ifstream file(std::string(JITGEMM_SOURCE_DIR) + "/tests/corpora/" + name);
  std::vector<Problem> problems;
  for (Problem problem; file >> problem.m >> problem.n >> problem.k;) problems.push_back(problem);
  return problems;
}

/// Empty, or an element of D that is wrong: the corners and some between, of a D too large to check whole.
std::string spot_check(GemmDevice& device, const GemmCase& gemm, std::uint64_t seed) {
  const GemmInputs inputs = make_inputs(gemm, Fill::normal, seed);
  const std::vector<char> d = device.run(gemm, inputs);
  const Operands operands{.a = inputs.a.data() + gemm.offset_a, .b = inputs.b.data() + gemm.offset_b};
  const Problem& p = gemm.problem;
  Random random(seed);
  for (int i = 0; i < 400; ++i) {
    const std::int64_t row = i < 4 ? i % 2 * (p.m - 1) : std::int64_t(random.uniform() * double(p.m));
    const std::int64_t column = i < 4 ? i / 2 * (p.n - 1) : std::int64_t(random.uniform() * double(p.n));
    const ReferenceElement expected = reference_element(p, operands, gemm.config.main_loop, 0, row, column);
    const double value = load(d.data() + d_guard_bytes + gemm.offset_d, row * p.d.ld + column, p.d.type);
    if (within(value, expected, p.d.type)) continue;
    return to_string(gemm) + ": D(" + std::to_string(row) + ", " + std::to_string(column) + ") is " +
           std::to_string(value) + ", not " + std::to_string(expected.d) + " +- " + std::to_string(expected.bound);
  }
  return "";
}

/// Few, small, and through every path: for compute-sanitizer.
void run_small(GemmDevice& device, MainLoop main_loop) {
  std::vector<GemmCase> cases;
  for (const KernelConfig& config : split_schedules(main_loop)) {
    Problem problem = split_problem(config);
    for (const DataType d : {f16, f32}) {
      problem.d.type = d;
      cases.push_back(plain_case(problem, config));
    }
  }
  const std::vector<GemmCase> pairwise = pairwise_cases(main_loop, 1), layouts = layout_cases(main_loop);
  for (std::size_t i = 0; i < pairwise.size(); i += 6) cases.push_back(pairwise[i]);
  for (std::size_t i = 0; i < layouts.size(); i += 3) cases.push_back(layouts[i]);
  device.compile(cases);
  run_all({&device}, cases);
}

}  // namespace

TEST_CASE("On the GPU, problems of all pairs are right with the portable main loop", "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not);
  if (!device) SKIP(why_not);
  run_pairwise_on_gpu(*device, MainLoop::sm80);
}

TEST_CASE("On the GPU, problems of all pairs are right with the Hopper main loop", "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not, MainLoop::sm90);
  if (!device) SKIP(why_not);
  run_pairwise_on_gpu(*device, MainLoop::sm90);
}

TEST_CASE("On the GPU, 200 repeats of each split schedule give the same bits with the portable main loop",
          "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not);
  if (!device) SKIP(why_not);
  repeats_bit_for_bit(*device, MainLoop::sm80);
}

TEST_CASE("On the GPU, 200 repeats of each split schedule give the same bits with the Hopper main loop",
          "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not, MainLoop::sm90);
  if (!device) SKIP(why_not);
  repeats_bit_for_bit(*device, MainLoop::sm90);
}

TEST_CASE("GPU and emulator agree with the portable main loop", "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not);
  if (!device) SKIP(why_not);
  agrees_with_emulator(*device, MainLoop::sm80);
}

TEST_CASE("GPU and emulator agree with the Hopper main loop", "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not, MainLoop::sm90);
  if (!device) SKIP(why_not);
  agrees_with_emulator(*device, MainLoop::sm90);
}

TEST_CASE("On the GPU, shapes of the corpora are right with the chosen configuration and every schedule",
          "[gpu][gemm]") {
  std::string why_not;
  auto device = cuda_device(why_not);
  if (!device) SKIP(why_not);
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  for (const char* name :
       {"streamk_aligned8_300.txt", "streamk_unaligned_100.txt", "llm_decode_49.txt", "seed_singles.txt"}) {
    const std::vector<Problem> problems = corpus(name);
    REQUIRE(problems.size() > 0);
    for (std::size_t i = 0; i < problems.size(); i += 1 + problems.size() / 8) {
      if (problems[i].k * std::max(problems[i].m, problems[i].n) > 1 << 25) continue;  // slow to make on the host
      GemmCase gemm;
      gemm.problem = normalise(problems[i]);  // packed, as unaligned as its sizes are
      gemm.config = device->context().plan(gemm.problem).config;
      CHECK(spot_check(*device, gemm, test_seed() + i) == "");
      const int ctas = device->context().device().sm_count;
      for (const Schedule schedule : {Schedule::persistent, Schedule::stream_k, Schedule::stream_k_two_tile}) {
        gemm.config = {.stages = 4, .warps = 8, .schedule = schedule, .grid = ctas};
        CHECK(spot_check(*device, gemm, test_seed() + i) == "");
      }
    }
  }
}

TEST_CASE("On the GPU, small problems are right with the portable main loop", "[gpu][gemm][small]") {
  std::string why_not;
  auto device = cuda_device(why_not);
  if (!device) SKIP(why_not);
  run_small(*device, MainLoop::sm80);
}

TEST_CASE("On the GPU, small problems are right with the Hopper main loop", "[gpu][gemm][small]") {
  std::string why_not;
  auto device = cuda_device(why_not, MainLoop::sm90);
  if (!device) SKIP(why_not);
  run_small(*device, MainLoop::sm90);
}
