// The kernel that checks what candidates compute, on the emulator: what it must find, whatever the types, and what it
// must let pass. What is right comes from tests/reference.hpp, which shares nothing with it.
#include <cmath>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/element.hpp"
#include "core/type_rules.hpp"
#include "jit/source_generator.hpp"
#include "nvrtc.hpp"
#include "output_check_cases.hpp"
#include "random.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using namespace jitgemm::test::output_check;
using Catch::Matchers::ContainsSubstring;

namespace {

/// An element that is in nobody's sample, so that a first D with an error there is accepted.
std::int64_t unsampled(Candidates& candidates) {
  for (std::int64_t element = candidates.count() / 2; element < candidates.count(); ++element) {
    candidates.begin();
    if (candidates.judge([&] { candidates.spoil(element); }).why_wrong.empty()) return element;
  }
  throw std::logic_error("every element is in the sample");
}

}  // namespace

TEST_CASE("A wrong element is found wherever it is in D, of each type", "[output_check][emulated]") {
  for (const Problem& problem : of_each_type()) {
    Candidates candidates(problem);
    INFO(to_string(candidates.p));
    candidates.begin();
    const std::int64_t last = candidates.count() - 1;
    require_right(candidates.judge_right());
    for (const std::int64_t element :
         {std::int64_t(0), std::int64_t(1), 2 * candidates.p.n, last / 3 + 5, last - 1, last}) {
      INFO("element " << element);
      CHECK_THAT(candidates.judge([&] { candidates.spoil(element); }).why_wrong, ContainsSubstring(" is "));
      CHECK_THAT(candidates.judge([&] { candidates.unwrite(element); }).why_wrong, ContainsSubstring(" is "));
      if (candidates.p.d.type != s32)
        CHECK_THAT(candidates.judge([&] { candidates.put(element, NAN); }).why_wrong, ContainsSubstring(" is "));
    }
    const auto tile = [&] {
      for (std::int64_t row = 32; row < 64; ++row)
        for (std::int64_t column = 64; column < candidates.p.n; ++column)
          candidates.spoil(row * candidates.p.n + column);
    };
    CHECK_THAT(candidates.judge(tile).why_wrong, ContainsSubstring(" is "));
    require_right(candidates.judge_right());
  }
}

TEST_CASE("A wrong element of a large D is found wherever it is", "[output_check][emulated]") {
  Candidates candidates({.m = 700, .n = 900, .k = 8, .d = {f16, {}, 903}});
  candidates.begin();
  require_right(candidates.judge_right());
  Random random(test_seed());
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  std::vector<std::int64_t> elements{0, candidates.count() - 1};
  for (int i = 0; i < 10; ++i) elements.push_back(random.between(0, int(candidates.count() - 1)));
  for (const std::int64_t element : elements) {
    const std::string place = "D[" + std::to_string(element / 900) + ", " + std::to_string(element % 900) + "] is ";
    CHECK_THAT(candidates.judge([&] { candidates.spoil(element); }).why_wrong, ContainsSubstring(place));
  }
  CHECK(candidates
            .judge([&] {
              for (const std::int64_t element : elements) candidates.spoil(element);
            })
            .why_wrong != "");
}

TEST_CASE("Which of two that differ is wrong is recomputed, of each type", "[output_check][emulated]") {
  for (const Problem& problem : of_each_type()) {
    Candidates candidates(problem);
    INFO(to_string(candidates.p));
    const std::int64_t element = unsampled(candidates);  // and a D that has it wrong is accepted
    const OutputCheck::Verdict second = candidates.judge_right();
    CHECK(second.why_wrong == "");
    CHECK(second.accepted_were_wrong);
    require_right(candidates.judge_right());  // the right one took their place
    CHECK(candidates.judge([&] { candidates.spoil(element); }).why_wrong != "");
  }
}

TEST_CASE("Right results that differ by what accumulation may are accepted, of each type", "[output_check][emulated]") {
  for (const Problem& problem : of_each_type()) {
    Candidates candidates(problem);
    INFO(to_string(candidates.p));
    candidates.begin();
    for (const double off : {0.0, 0.9, -0.9, 0.5}) require_right(candidates.judge_right(off));
    const std::int64_t last = candidates.count() - 1;
    CHECK(candidates.judge([&] { candidates.spoil(last / 2); }, -0.9).why_wrong != "");
  }
}

TEST_CASE("The first D is right only if all of it is written", "[output_check][emulated]") {
  for (const Problem& problem : of_each_type()) {
    Candidates candidates(problem);
    INFO(to_string(candidates.p));
    for (const std::int64_t element : {candidates.count() / 2 + 7, candidates.count() - 1}) {
      candidates.begin();
      CHECK(candidates.judge([&] { candidates.unwrite(element); }).why_wrong != "");
      require_right(candidates.judge_right());
    }
  }
}

TEST_CASE("NVRTC takes the checking kernel of each type", "[output_check][cuda]") {
  for (const std::string architecture : {"sm_80", "sm_90a"}) {
    const auto backend = nvrtc_for(architecture);
    if (!backend) SKIP(no_nvrtc);
    for (const Problem& problem : of_each_type()) {
      if (architecture == "sm_80" && is_fp8(problem.a.type)) continue;
      INFO(architecture << ", " << to_string(problem));
      CHECK(backend->compile(generate_check(normalise(problem), backend->device())).spill_bytes == 0);
    }
  }
}

TEST_CASE("On a GPU the check finds what it finds on the emulator", "[output_check][gpu]") {
  if (cuda_devices().empty()) SKIP("no CUDA device");
  std::vector<Problem> problems = of_each_type();
  problems.push_back({.m = 3000, .n = 2500, .k = 100, .d = {f16, {}, 2600}, .epilogue = {.bias = Bias::along_m}});
  for (const Problem& problem : problems) {
    auto backend = make_cuda_backend();
    if (is_fp8(problem.a.type) && backend->device().compute_capability < 89) continue;
    Candidates candidates(problem, std::move(backend));
    INFO(to_string(candidates.p));
    candidates.begin();
    const std::int64_t last = candidates.count() - 1;
    CHECK(candidates.judge([&] { candidates.unwrite(last / 2 + 7); }).why_wrong != "");
    for (const double off : {0.0, 0.9, -0.9}) require_right(candidates.judge_right(off));
    for (const std::int64_t element : {std::int64_t(0), last / 3 + 5, last - 1, last})
      CHECK_THAT(candidates.judge([&] { candidates.spoil(element); }).why_wrong,
                 ContainsSubstring("D[" + std::to_string(element / candidates.p.n) + ", "));
  }
}

TEST_CASE("What is written behind the rows of D is found", "[output_check][emulated]") {
  Candidates candidates({.m = 40, .n = 65, .k = 16, .batch = 2, .d = {f16, {}, 100, 4100}});
  candidates.begin();
  require_right(candidates.judge_right());
  const auto write = [&](std::int64_t place) {
    return candidates.judge([&] { store_element(1, candidates.operands.d, place, f16); });
  };
  CHECK_THAT(write(65).why_wrong, ContainsSubstring("beyond the end of row 0 of D, at column 65"));
  CHECK_THAT(write(39 * 100 + 99).why_wrong, ContainsSubstring("beyond the end of row 39 of D, at column 99"));
  CHECK_THAT(write(4100 + 20 * 100 + 70).why_wrong, ContainsSubstring("beyond the end of row 60 of D, at column 70"));
  require_right(candidates.judge_right());
}

TEST_CASE("Rows with larger products than any of the sample hide no error", "[output_check][emulated]") {
  Candidates candidates({.m = 70, .n = 90, .k = 64, .d = {f32}});
  for (int i = 0; i < 64; ++i) {  // one row of A
    std::uint16_t* const a = static_cast<std::uint16_t*>(const_cast<void*>(candidates.operands.a)) + 35 * 64 + i;
    store_element(1000 * load(a, 0, f16), a, 0, f16);
  }
  candidates.begin();
  require_right(candidates.judge_right(-0.9));
  require_right(candidates.judge_right(0.9));  // its elements are further apart than the sample allows for
  CHECK(candidates.judge([&] { candidates.spoil(36 * 90 + 89); }, 0.9).why_wrong != "");
}

TEST_CASE("The checking kernel is generated, cached and found again like any other", "[output_check][emulated]") {
  const TemporaryDirectory directory;
  KernelCache cache({.directory = directory.path()});
  const auto backend = make_emulator_backend({});
  const NormalProblem p = normalise({.m = 64, .n = 64, .k = 64});
  const KernelSource source = generate_check(p, backend->device());
  CHECK(is_current(source));
  KernelSource other = source;
  other.text.insert(other.text.find("reduce("), "not_");
  CHECK_FALSE(is_current(other));
  CHECK(
      generate_check(normalise({.m = 640, .n = 32, .k = 8, .a = {f16, columns}, .alpha = 3}), backend->device()).text ==
      source.text);
  for (const int compiles : {1, 0}) {
    KernelStore store(*backend, cache);
    store.get(source, 0);
    CHECK(int(store.compiles()) == compiles);
    CHECK(int(store.disk_hits()) == 1 - compiles);
  }
}

TEST_CASE("The check says the same in every order of threads and blocks", "[output_check][emulated][removal][check]") {
  const auto judge_all = [](std::uint64_t seed) -> std::string {
    Candidates candidates({.m = 40, .n = 61, .k = 200, .batch = 2, .d = {f16, {}, 67}},
                          make_emulator_backend({.architecture = {}, .seed = seed}));
    candidates.begin();
    for (const std::int64_t element :
         {std::int64_t(-1), std::int64_t(-1), std::int64_t(61), candidates.count() / 2 + 3, candidates.count() - 1}) {
      const auto verdict = candidates.judge([&] {
        if (element >= 0) candidates.spoil(element);
      });
      if (verdict.accepted_were_wrong) return "what was accepted is said to be wrong";
      if (verdict.why_wrong.empty() == (element >= 0)) return element < 0 ? verdict.why_wrong : "an error is not found";
      const std::string place = "D[" + std::to_string(element / 61) + ", " + std::to_string(element % 61) + "] is ";
      if (element >= 0 && (!verdict.why_wrong.starts_with(place) ||
                           (element == 61 && verdict.why_wrong.find(": 1)") == std::string::npos)))
        return "another error is found: " + verdict.why_wrong;
    }
    return "";
  };
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    std::string wrong;
    try {
      wrong = judge_all(seed);
    } catch (const Error& error) {
      wrong = std::string(error.what()) + "\n" + error.log();
    }
    if (wrong.empty()) continue;
    std::cout << "caught with seed " << seed << ": " << wrong << std::endl;
    FAIL("seed " << seed << ": " << wrong);
  }
}
