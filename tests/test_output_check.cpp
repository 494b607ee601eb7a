// The kernel that checks what candidates compute, on the emulator: what it must find, whatever the types, and what it
// must let pass. What is right comes from tests/reference.hpp, which shares nothing with it.
#include "tune/output_check.hpp"

#include <cmath>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/element.hpp"
#include "core/operand_matrix.hpp"
#include "core/type_rules.hpp"
#include "jit/source_generator.hpp"
#include "nvrtc.hpp"
#include "random.hpp"
#include "reference.hpp"
#include "tuning_session.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr Layout columns = Layout::column_major;

/// Kernels that the tests of one process share.
struct Kernels {
  TemporaryDirectory directory;
  KernelCache cache{{.directory = directory.path()}};
};
Kernels& kernels() {
  static Kernels all;
  return all;
}

/// Operands of a problem, the D that float64 has of them, and the check of whatever is put into D.
class Candidates {
 public:
  explicit Candidates(const Problem& asked, std::unique_ptr<Backend> device = make_emulator_backend({}),
                      double scale = 1)
      : p(normalise(asked)), backend(std::move(device)), store(*backend, kernels().cache) {
    const DataType addend = type_of_c(p);
    operands.a = random(matrix_a(p).batch_span(), p.a.type, on_device_.a);
    operands.b = random(matrix_b(p).batch_span(), p.b.type, on_device_.b);
    if (reads_c(p)) operands.c = random(matrix_c(p).batch_span(), addend, on_device_.c);
    if (p.epilogue.bias != Bias::none) operands.bias = random(bias_elements(p), addend, on_device_.bias);
    if (scale != 1) {
      operands.scale_a = scalar(0.5 * scale, on_device_.scale_a);
      operands.scale_b = scalar(3, on_device_.scale_b);
      if (is_fp8(p.d.type)) operands.scale_d = scalar(scale, on_device_.scale_d);
    }
    const void* d = nullptr;
    operands.d = random(matrix_d(p).batch_span(), p.d.type, d);
    on_device_.d = const_cast<void*>(d);
  }

  /// After whatever a test changes of the operands, which are on the host.
  void begin() {
    for (Array& array : arrays_) array.upload(*backend);
    Scales by;
    if (operands.scale_a) by.product = double(*operands.scale_a) * double(*operands.scale_b);
    if (operands.scale_d) by.d = *operands.scale_d;
    exact = reference(p, operands, MainLoop::sm80, by);
    check.emplace(*backend, store, p, on_device_, nullptr);
  }

  std::int64_t count() const { return p.batch * p.m * p.n; }
  std::int64_t place(std::int64_t element) const {
    const std::int64_t row = element / p.n;
    return row / p.m * p.d.stride + row % p.m * p.d.ld + element % p.n;
  }
  double right(std::int64_t element) const { return exact.d[std::size_t(element)]; }
  void put(std::int64_t element, double x) { store_element(x, operands.d, place(element), p.d.type); }
  /// What no rounding explains.
  void spoil(std::int64_t element) {
    const double x = load(operands.d, place(element), p.d.type);
    put(element, p.d.type == s32 ? x + 1 : x > 0 ? x / 2 - 8 : x / 2 + 8);
  }
  void unwrite(std::int64_t element) {
    const std::size_t size = size_of(p.d.type);
    std::memset(static_cast<char*>(operands.d) + std::size_t(place(element)) * size, device::POISON, size);
  }

  /// Of a D that is right but for what `change` does to it, each element `off` of what its accumulation allows away.
  template <typename Change>
  OutputCheck::Verdict judge(const Change& change, double off = 0) {
    check->poison();
    Array& d = arrays_.back();
    backend->copy_to_host(d.host.data(), d.device.get(), d.host.size());
    for (std::int64_t i = 0; i < count(); ++i) {
      const double bound = exact.bound[std::size_t(i)] - test::unit_roundoff(p.d.type) * std::abs(right(i));
      put(i, right(i) + (i % 2 ? off : -off) * std::max(0.0, bound));
    }
    change();
    d.upload(*backend);
    return check->judge();
  }
  OutputCheck::Verdict judge_right(double off = 0) {
    return judge([] {}, off);
  }

  const NormalProblem p;
  const std::unique_ptr<Backend> backend;
  KernelStore store;
  Operands operands;  // on the host
  Reference exact;
  std::optional<OutputCheck> check;

 private:
  struct Array {
    std::vector<char> host;
    DeviceMemory device;
    void upload(Backend& backend) const { backend.copy_to_device(device.get(), host.data(), host.size()); }
  };

  /// Returns the host's, and sets the device's.
  template <typename T>
  char* random(std::int64_t elements, DataType type, const T*& on_device) {
    const std::size_t bytes = std::size_t(elements) * size_of(type);
    Array& array =
        arrays_.emplace_back(std::vector<char>(std::max<std::size_t>(bytes, 1)), allocate_memory(*backend, bytes));
    backend->fill_random(array.device.get(), elements, type, arrays_.size());
    backend->copy_to_host(array.host.data(), array.device.get(), array.host.size());
    on_device = static_cast<const T*>(array.device.get());
    return array.host.data();
  }
  const float* scalar(double x, const float*& on_device) {
    char* const host = random(1, f32, on_device);
    store_element(x, host, 0, f32);
    return reinterpret_cast<const float*>(host);
  }

  std::vector<Array> arrays_;  // D is the last
  Operands on_device_;
};

void require_right(const OutputCheck::Verdict& verdict) {
  CHECK(verdict.why_wrong == "");
  CHECK_FALSE(verdict.accepted_were_wrong);
}

/// One of each type of operand and of D.
std::vector<Problem> of_each_type() {
  return {{.m = 70, .n = 91, .k = 64},
          {.m = 70, .n = 91, .k = 64, .d = {f32}},
          {.m = 70, .n = 91, .k = 64, .a = {bf16}, .b = {bf16}, .d = {bf16}},
          {.m = 70, .n = 91, .k = 64, .a = {e4m3}, .b = {e5m2}, .d = {e4m3}},
          {.m = 70, .n = 91, .k = 64, .a = {e5m2}, .b = {e5m2}, .d = {e5m2}, .accumulation = Accumulation::promoted},
          {.m = 70, .n = 91, .k = 64, .a = {tf32}, .b = {tf32}, .d = {f32}},
          {.m = 70, .n = 91, .k = 64, .a = {f32}, .b = {f32}, .d = {f32}},
          {.m = 70, .n = 91, .k = 64, .a = {f64}, .b = {f64}, .d = {f64}},
          {.m = 70, .n = 91, .k = 64, .a = {s8}, .b = {s8}, .d = {s32}}};
}

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

TEST_CASE("Where a D is right all of the epilogue was recomputed", "[output_check][emulated]") {
  const Problem f16_all{.m = 19, .n = 23, .k = 40, .alpha = -0.75, .beta = 1.5};
  std::vector<Problem> problems;
  for (const Bias bias : {Bias::along_n, Bias::along_m})
    for (const Activation activation : {Activation::none, Activation::leaky_relu, Activation::silu}) {
      problems.push_back(f16_all);
      problems.back().epilogue = {.bias = bias, .activation = activation, .slope = 0.25};
    }
  problems.push_back({.m = 19, .n = 23, .k = 0, .beta = 2});
  problems.push_back({.m = 19, .n = 23, .k = 40, .alpha = 0, .epilogue = {.bias = Bias::along_m}});
  problems.push_back({.m = 19, .n = 23, .k = 40, .epilogue = {.activation = Activation::gelu_erf}});
  problems.push_back({.m = 19,
                      .n = 23,
                      .k = 40,
                      .a = {s8},
                      .b = {s8},
                      .d = {s32},
                      .alpha = -3,
                      .beta = 5,
                      .epilogue = {.bias = Bias::along_m, .activation = Activation::relu}});
  problems.push_back({.m = 19,
                      .n = 23,
                      .k = 40,
                      .a = {f64},
                      .b = {f64},
                      .d = {f64},
                      .alpha = 1e-3,
                      .beta = -1,
                      .epilogue = {.activation = Activation::gelu_tanh}});
  // Layouts, leading dimensions, batches: apart, side by side, of one A, with gaps.
  problems.push_back({.m = 19, .n = 23, .k = 40, .a = {f16, columns, 25}, .b = {f16, columns, 44}, .d = {f16, {}, 30}});
  problems.push_back({.m = 19,
                      .n = 23,
                      .k = 40,
                      .batch = 3,
                      .a = {f16, {}, 0, 0},
                      .b = {f16, columns},
                      .c = {DataType::automatic, {}, 24, 900},
                      .d = {f16, {}, 80, 26},
                      .beta = 1});
  problems.push_back({.m = 19, .n = 23, .k = 40, .batch = 3, .a = {f16, {}, 41, 1000}, .d = {f16, {}, 29, 600}});
  problems.push_back({.m = 3000, .n = 1, .k = 3});
  for (const Problem& problem : problems) {
    Candidates candidates(problem);
    INFO(to_string(candidates.p));
    candidates.begin();
    require_right(candidates.judge_right());
    require_right(candidates.judge_right(0.9));
    const std::int64_t last = candidates.count() - 1;
    for (const std::int64_t element : {std::int64_t(0), last / 2 + 1, last})
      CHECK(candidates.judge([&] { candidates.spoil(element); }).why_wrong != "");
  }
}

TEST_CASE("Scales are the kernel's, and an 8-bit D saturates", "[output_check][emulated]") {
  for (const double scale : {0.25, 40.0}) {
    Candidates candidates({.m = 19, .n = 23, .k = 40, .a = {e4m3}, .b = {e4m3}, .d = {e4m3}, .alpha = 2},
                          make_emulator_backend({}), scale);
    candidates.begin();
    require_right(candidates.judge_right());
    CHECK(candidates.judge([&] { candidates.spoil(5); }).why_wrong != "");
    *const_cast<float*>(candidates.operands.scale_b) = -3;  // what was right no longer is
    const Reference before = candidates.exact;
    candidates.begin();
    candidates.exact = before;
    CHECK(candidates.judge_right().why_wrong != "");
  }
}

TEST_CASE("Integers are exact, and wrap", "[output_check][emulated]") {
  Candidates candidates({.m = 9, .n = 12, .k = 300, .a = {s8}, .b = {s8}, .d = {s32}, .alpha = 1 << 30});
  for (int i = 0; i < 9 * 300; ++i) static_cast<signed char*>(const_cast<void*>(candidates.operands.a))[i] = 127;
  candidates.begin();
  require_right(candidates.judge_right());
  CHECK(candidates.judge([&] { candidates.put(50, candidates.right(50) + 1); }).why_wrong != "");
  candidates.begin();
  CHECK(candidates.judge([&] { candidates.put(0, candidates.right(0) - 1); }).why_wrong != "");
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

TEST_CASE("Without memory for a second D the sample decides, and the log says so once", "[output_check]") {
  const std::size_t d_bytes = 48 * 40 * 4;
  FakeBackend backend({.memory_bytes = d_bytes + 2 * (48 + 40) * 64 + 8 * 1024});
  const TemporaryDirectory directory;
  const CapturedLog log;
  KernelCache cache({.directory = directory.path()});
  KernelStore store(backend, cache);
  const DeviceMemory a = allocate_memory(backend, 48 * 64 * 2), b = allocate_memory(backend, 64 * 40 * 2),
                     d = allocate_memory(backend, d_bytes);
  backend.fill_random(a.get(), 48 * 64, f16, 1);
  backend.fill_random(b.get(), 64 * 40, f16, 2);
  const Operands operands{.a = a.get(), .b = b.get(), .d = d.get()};
  OutputCheck check(backend, store, problem, operands, nullptr);
  CHECK(log.count("no memory to compare all of D") == 1);
  const Reference exact = reference(problem, operands, MainLoop::sm80);
  const auto judge = [&](std::int64_t wrong, double by) {
    check.poison();
    for (std::int64_t i = 0; i < 48 * 40; ++i) {
      if (i == wrong && std::isnan(by)) continue;
      store_element(exact.d[std::size_t(i)] + (i == wrong ? by : 0), d.get(), i, f32);
    }
    return check.judge().why_wrong;
  };
  for (int i = 0; i < 2; ++i) {
    CHECK(judge(0, 0) == "");
    CHECK(judge(0, 1) != "");
    CHECK(judge(48 * 40 - 1, 1) != "");
    CHECK(judge(17 * 40 + 22, NAN) != "");  // nothing has written it
  }
  CHECK(log.count("no memory") == 1);
}

TEST_CASE("A check that cannot be had or run lets no candidate through", "[output_check][faults]") {
  SECTION("its kernel does not compile") {
    Session session({.compile_check = [] { throw Error(ErrorCode::compile_failed, "ptxas is in a bad mood"); }});
    CHECK_FALSE(session.run());
    CHECK(session.log.count("given up: no candidate can be checked: ptxas is in a bad mood") == 1);
    CHECK(session.backend.alive() == 0);
  }
  for (const device::CheckTask failing :
       {device::CheckTask::recompute, device::CheckTask::read, device::CheckTask::scan, device::CheckTask::keep}) {
    SECTION("task " + std::to_string(int(failing)) + " fails, always") {
      Session session({.check = [failing](device::CheckTask task) {
        if (task == failing) throw Error(ErrorCode::launch_failed, "too hot");
      }});
      CHECK_FALSE(session.run());
      CHECK(session.backend.alive() == 0);
    }
    SECTION("task " + std::to_string(int(failing)) + " fails once") {
      int times = 0;
      Session session({.check = [failing, &times](device::CheckTask task) {
        if (task == failing && ++times == 1) throw Error(ErrorCode::launch_failed, "too hot");
      }});
      const auto result = session.run();
      CHECK(result.has_value() == (failing != device::CheckTask::recompute));
      if (result) CHECK_THAT(result->candidates[0].skipped, ContainsSubstring("too hot"));
      CHECK(session.backend.alive() == 0);
    }
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
