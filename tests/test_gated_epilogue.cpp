// Epilogues of pairs of columns (jitgemm/epilogue.hpp), on the emulator and on a GPU. Sums are of small integers, so
// that they are exact and what the function makes of them is known to the bit. Operands end where their memory does:
// what reads beyond them stops the test.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/element.hpp"
#include "core/pairing.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "exact_memory.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/jitgemm.hpp"
#include "kernels/legality.hpp"
#include "kernels/packing.hpp"
#include "random.hpp"
#include "reference.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::array pairings{Pairing::halves, Pairing::neighbours};

std::string line_of(Pairing pairs) { return pairs == Pairing::halves ? "// pairs halves\n" : "// pairs neighbours\n"; }

/// Of sums, operands in their order, row, column and batch of D: the result, and the outputs.
using Meaning = std::function<std::vector<double>(double gate, double up, const std::vector<double>& in, double row,
                                                  double column, double batch)>;
struct Case {
  std::string text;  // without its line of pairs
  Meaning meaning;
};

const Case everything{
    "// operand in residual matrix bf16\n// operand in bias along_n f16\n// operand out before matrix f32\n"
    "// operand in scale along_m f32\n// operand in limit scalar\n// operand out half matrix f16\n"
    "__device__ float epilogue(float gate, float up, const Args& args, Out& out) {\n"
    "  out.before = gate - up;\n"
    "  out.half = up * args.limit;\n"
    "  return fmaxf(gate, 0.0f) * args.scale + up * 2 + args.residual + args.bias + float(args.row + 2 * args.column + "
    "3 * args.batch);\n"
    "}\n",
    [](double gate, double up, const std::vector<double>& in, double row, double column, double batch) {
      return std::vector<double>{std::max(gate, 0.0) * in[2] + 2 * up + in[0] + in[1] + row + 2 * column + 3 * batch,
                                 gate - up, up * in[3]};
    }};

const Case difference{"__device__ float epilogue(float gate, float up, const Args&, Out&) { return 2 * gate - up; }\n",
                      [](double gate, double up, const std::vector<double>&, double, double, double) {
                        return std::vector<double>{2 * gate - up};
                      }};

double rounded(double x, DataType type) {
  unsigned char bytes[8];
  store(x, bytes, 0, type);
  return load(bytes, 0, type);
}

/// A Context, and memory of its device that ends where its bytes do.
class TestDevice {
 public:
  explicit TestDevice(const ContextOptions& options)
      : context(options), gpu_(options.device == Device::cuda ? make_cuda_backend() : nullptr) {}

  Context context;

  class Buffer {
   public:
    Buffer(Backend* gpu, std::size_t bytes, std::size_t alignment)
        : host_(allocate_exactly(bytes, alignment)), bytes_(bytes), gpu_(gpu) {
      if (gpu_) memory_ = gpu_->allocate(std::max<std::size_t>(1, bytes));
    }
    ~Buffer() {
      if (gpu_) gpu_->release(memory_);
    }
    Buffer(Buffer&& other) noexcept
        : host_(std::move(other.host_)), bytes_(other.bytes_), gpu_(std::exchange(other.gpu_, nullptr)) {
      memory_ = other.memory_;
    }
    Buffer& operator=(Buffer&&) = delete;

    char* host() const { return host_.get(); }
    char* to_device() const {
      if (!gpu_) return host();
      gpu_->copy_to_device(memory_, host(), bytes_);
      return static_cast<char*>(memory_);
    }
    void from_device() const {
      if (gpu_) gpu_->copy_to_host(host(), memory_, bytes_);
    }

   private:
    Memory host_;
    std::size_t bytes_;
    Backend* gpu_;
    void* memory_ = nullptr;
  };

  Buffer buffer(std::int64_t count, DataType type, int fill, Random* random, std::size_t alignment = 16) {
    const std::size_t bytes = std::size_t(count) * size_of(type);
    Buffer buffer(gpu_.get(), bytes, alignment);
    if (bytes > 0) std::memset(buffer.host(), fill, bytes);
    if (random)
      for (std::int64_t i = 0; i < count; ++i) store(random->between(-2, 2), buffer.host(), i, type);
    return buffer;
  }
  void wait() {
    if (gpu_) gpu_->synchronize(nullptr);
  }

 private:
  std::unique_ptr<Backend> gpu_;
};

struct How {
  const KernelConfig* config = nullptr;
  std::int64_t pad = 0;  // elements between rows of B, D and the operands
  float scale_d = 1;     // of 8-bit D
};

/// Runs it and says which element is wrong first; empty if none is.
std::string run(TestDevice& device, Problem problem, Pairing pairs, const Case& one, Random& random, How how = {}) {
  const EpilogueFunction function = parse_epilogue(line_of(pairs) + one.text);
  problem.epilogue.function = define_epilogue(function);
  const DataType accumulator = problem.a.type == f64 ? f64 : problem.a.type == s8 ? s32 : f32;
  const std::int64_t m = problem.m, n = problem.n, k = problem.k, batch = problem.batch, width = n / 2;
  const bool n_major = problem.b.layout == Layout::row_major;
  const std::int64_t ldb = (n_major ? n : k) + how.pad, rows_b = n_major ? k : n, ldd = width + how.pad;
  problem.b.ld = how.pad > 0 ? ldb : 0;
  problem.d.ld = how.pad > 0 ? ldd : 0;
  const auto span = [](std::int64_t rows, std::int64_t ld, std::int64_t columns) {
    return rows == 0 ? 0 : (rows - 1) * ld + columns;
  };
  const auto a = device.buffer(m * k * batch, problem.a.type, 0, &random);
  const auto b = device.buffer(span(rows_b * batch, ldb, n_major ? n : k), problem.b.type, 0, &random);
  const auto d = device.buffer(span(m * batch, ldd, width), problem.d.type, 0xff, nullptr);
  const auto scale_d = device.buffer(1, f32, 0, nullptr);
  store(how.scale_d, scale_d.host(), 0, f32);

  struct Values {
    const EpilogueOperand* operand = nullptr;
    std::unique_ptr<TestDevice::Buffer> buffer;
    std::int64_t ld = 0;
    double scalar = 0;
  };
  std::vector<Values> values;
  std::vector<EpilogueValue> given;
  for (const EpilogueOperand& operand : function.operands) {
    Values v;
    v.operand = &operand;
    EpilogueValue value;
    if (operand.shape == OperandShape::scalar) {
      value.scalar = v.scalar = random.between(-3, 3);
    } else {
      const bool is_matrix = operand.shape == OperandShape::matrix;
      v.ld = is_matrix ? ldd : operand.shape == OperandShape::along_m ? m : width;
      const std::int64_t count = is_matrix ? span(m * batch, ldd, width) : v.ld * batch;
      v.buffer.reset(new TestDevice::Buffer(
          device.buffer(count, operand.type, 0xff, operand.output ? nullptr : &random, size_of(operand.type))));
      (operand.output ? value.out : const_cast<void*&>(value.in)) = v.buffer->to_device();
      value.ld = is_matrix ? ldd : 0;
      value.stride = is_matrix ? ldd * m : v.ld;
    }
    values.push_back(std::move(v));
    given.push_back(value);
  }
  Operands operands{.a = a.to_device(),
                    .b = b.to_device(),
                    .d = d.to_device(),
                    .epilogue = given.data(),
                    .epilogue_count = given.size()};
  if (size_of(problem.d.type) == 1 && problem.d.type != s8)
    operands.scale_d = reinterpret_cast<const float*>(scale_d.to_device());
  if (how.config)
    device.context.gemm(problem, operands, nullptr, *how.config);
  else
    device.context.gemm(problem, operands);
  device.wait();
  d.from_device();
  for (const Values& v : values)
    if (v.operand->output) v.buffer->from_device();

  for (std::int64_t z = 0; z < batch; ++z)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        const auto sum = [&](std::int64_t column) {
          double total = 0;
          for (std::int64_t p = 0; p < k; ++p)
            total += load(a.host(), (z * m + i) * k + p, problem.a.type) *
                     load(b.host(), n_major ? (z * k + p) * ldb + column : (z * n + column) * ldb + p, problem.b.type);
          return problem.alpha * total;
        };
        const bool halves = pairs == Pairing::halves;
        const double gate = sum(halves ? j : 2 * j), up = sum(halves ? width + j : 2 * j + 1);
        const auto place = [&](const Values& v) {
          switch (v.operand->shape) {
            case OperandShape::along_m:
              return z * m + i;
            case OperandShape::along_n:
              return z * width + j;
            default:
              return (z * m + i) * ldd + j;
          }
        };
        std::vector<double> in;
        for (const Values& v : values)
          if (!v.operand->output) in.push_back(v.buffer ? load(v.buffer->host(), place(v), v.operand->type) : v.scalar);
        const std::vector<double> expected = one.meaning(gate, up, in, double(i), double(j), double(z));
        const std::string at = " at " + std::to_string(z) + ", " + std::to_string(i) + ", " + std::to_string(j);
        const double got = load(d.host(), (z * m + i) * ldd + j, problem.d.type);
        const double wanted = rounded(how.scale_d * rounded(expected[0], accumulator), problem.d.type);
        if (got != wanted) return "D is " + std::to_string(got) + ", expected " + std::to_string(wanted) + at;
        std::size_t output = 1;
        for (const Values& v : values) {
          if (!v.operand->output) continue;
          const double out = load(v.buffer->host(), place(v), v.operand->type);
          const double its = rounded(expected[output++], v.operand->type);
          if (out != its)
            return v.operand->name + " is " + std::to_string(out) + ", expected " + std::to_string(its) + at;
        }
      }
  const auto written_between_rows = [&](const char* memory, DataType type) {
    const auto size = std::int64_t(size_of(type));
    for (std::int64_t row = 0; row + 1 < m * batch; ++row)
      for (std::int64_t i = (row * ldd + width) * size; i < (row + 1) * ldd * size; ++i)
        if (static_cast<unsigned char>(memory[i]) != 0xff) return true;
    return false;
  };
  if (written_between_rows(d.host(), problem.d.type)) return "D is written beyond a row's end";
  for (const Values& v : values)
    if (v.operand->output && written_between_rows(v.buffer->host(), v.operand->type))
      return v.operand->name + " is written beyond a row's end";
  return {};
}

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DataType d = f32,
                   Layout layout_b = Layout::column_major) {
  return {.m = m, .n = n, .k = k, .a = {f16}, .b = {f16, layout_b}, .d = {d}};
}

ContextOptions on_emulator(const std::string& cache, Random& random) {
  ContextOptions options;
  options.device = Device::emulator;
  options.tuning = Tuning::off;
  options.cache_dir = cache;
  options.emulator_seed = random.next();
  return options;
}

/// By every way out of a kernel.
void meets_in_each_configuration(TestDevice& device, Random& random) {
  const char* const configs[] = {
      "sm80 64x64x32 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "sm80 32x32x64 group_m=1 stages=2 warps=1 schedule=data_parallel",  // 4 rows a step
      "sm80 32x32x32 group_m=1 stages=2 warps=2 schedule=split_k splits=3",
      "sm80 64x32x32 group_m=8 stages=2 warps=2 schedule=stream_k grid=3",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "sm90 64x48x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=data_parallel",
      "sm90 128x40x64 group_m=8 stages=2 warps=8 swap_ab=true schedule=data_parallel",
      "sm90 256x16x64 group_m=8 stages=2 warps=8 swap_ab=true schedule=data_parallel",
      "sm90 64x184x64 group_m=8 stages=2 warps=4 swap_ab=true schedule=data_parallel",
      "sm90 128x80x64 group_m=8 stages=2 warps=8 schedule=persistent grid=2",
      "sm90 64x208x64 group_m=8 stages=2 warps=4 schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=2",
      "sm90 64x32x64 group_m=8 stages=4 warps=4 cluster=1x2x1 schedule=data_parallel",
      "sm90 64x64x64 group_m=8 stages=4 warps=4 cluster=2x2x1 schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=4 warps=4 cluster=2x2x1 swap_ab=true schedule=data_parallel",
      "sm90 64x64x64 group_m=8 stages=4 warps=4 cluster=1x1x2 schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=4 warps=4 cluster=1x1x2 swap_ab=true schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=split_k splits=2",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=split_k splits=2",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=stream_k grid=3",
  };
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    for (const bool whole_groups : {true, false}) {
      const Pairing pairs = random.pick(pairings);
      const std::int64_t width = whole_groups ? random.between(1, 14) * 8 : random.between(1, 110);
      const Problem problem = problem_of(random.between(1, 9) * 11, 2 * width, 8 * random.between(9, 30),
                                         random.between(0, 1) == 0 ? f32 : f16);
      CAPTURE(text, to_string(problem), int(pairs));
      CHECK(run(device, problem, pairs, everything, random, {.config = &config, .pad = 8 * random.between(0, 1)}) ==
            "");
    }
  }
}

/// Each layout and alignment of B, each type, as the model chooses.
void layouts_and_types(TestDevice& device, Random& random) {
  for (const Pairing pairs : pairings) {
    for (const Layout layout : {Layout::column_major, Layout::row_major}) {
      for (Problem problem : {problem_of(1, 2, 1), problem_of(37, 42, 19), problem_of(3, 130, 65),
                              problem_of(65, 14, 128, f16), problem_of(70, 96, 64, bf16)}) {
        problem.b.layout = layout;
        problem.batch = random.between(1, 3);
        CAPTURE(to_string(problem), int(pairs));
        CHECK(run(device, problem, pairs, random.between(0, 2) == 0 ? everything : difference, random,
                  {.pad = random.between(0, 2)}) == "");
      }
      struct Types {
        DataType a, b, d;
      };
      for (const Types types : {Types{e4m3, e5m2, bf16}, Types{e4m3, e4m3, e4m3}, Types{tf32, tf32, f32},
                                Types{f32, f32, f32}, Types{f64, f64, f64}, Types{s8, s8, s32}}) {
        Problem problem = problem_of(35, 2 * random.between(3, 9) * random.between(1, 8), 80, types.d, layout);
        problem.a.type = types.a, problem.b.type = types.b;
        CAPTURE(to_string(problem), int(pairs));
        Case one = difference;
        const std::string type = types.a == f64 ? "double" : types.a == s8 ? "int" : "float";
        if (type != "float")
          for (std::size_t at; (at = one.text.find("float")) != std::string::npos;) one.text.replace(at, 5, type);
        const How how{.scale_d = types.d == e4m3 ? 0.5f : 1.0f};
        CHECK(run(device, problem, pairs, one, random, how) == "");
      }
    }
  }
}

/// The ways of the portable loop to N-major columns, and of packing.
void sources_of_pairs(TestDevice& device, Random& random) {
  const char* const configs[] = {
      "sm80 64x64x32 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "sm80 32x64x64 group_m=8 stages=2 warps=2 schedule=data_parallel",
      "sm90 64x64x64 group_m=8 stages=2 warps=4 schedule=data_parallel pack=b",
      "sm90 64x32x64 group_m=8 stages=2 warps=4 swap_ab=true schedule=data_parallel pack=b",
      "sm90 64x64x64 group_m=8 stages=2 warps=4 schedule=data_parallel pack=ab",
  };
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    for (const Pairing pairs : pairings)
      for (const Layout layout : {Layout::column_major, Layout::row_major})
        for (const int k : {80, 77}) {
          Problem problem = problem_of(random.between(1, 80), 2 * random.between(1, 70), k, f16, layout);
          problem.batch = random.between(1, 2);
          if (config.main_loop == MainLoop::sm90 && !config.pack_a && k % 8 != 0) continue;
          CAPTURE(text, to_string(problem), int(pairs));
          CHECK(run(device, problem, pairs, everything, random, {.config = &config, .pad = random.between(0, 3)}) ==
                "");
        }
  }
}

}  // namespace

TEST_CASE("Both columns of a pair meet, by every way out of a kernel", "[gated_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  TestDevice device(on_emulator(cache.path(), random));
  meets_in_each_configuration(device, random);
}

TEST_CASE("Pairs are of each layout, alignment and type", "[gated_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  TestDevice device(on_emulator(cache.path(), random));
  layouts_and_types(device, random);
}

TEST_CASE("Pairs are found in rows and columns of B, packed and not", "[gated_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  TestDevice device(on_emulator(cache.path(), random));
  sources_of_pairs(device, random);
}

TEST_CASE("A text says which columns are pairs, and its function takes two sums", "[gated_epilogue]") {
  const std::string two = "__device__ float epilogue(float gate, float up, const Args&, Out&) { return gate * up; }\n",
                    one = "__device__ float epilogue(float x, const Args&, Out&) { return x; }\n";
  const auto why = [](const std::string& text) {
    return refusal(ErrorCode::invalid_problem, [&] { define_epilogue(parse_epilogue(text)); });
  };
  for (const Pairing pairs : pairings) {
    const std::string text = line_of(pairs) + everything.text;
    const EpilogueFunction function = parse_epilogue(text);
    CHECK(function.pairs == pairs);
    CHECK(function.operands.size() == 6);
    CHECK(to_string(function) == text);
    Problem problem = problem_of(8, 12, 8);
    problem.epilogue.function = define_epilogue(function);
    CHECK(pairing_of(problem) == pairs);
    CHECK(columns_of_d(problem) == 6);
    CHECK(normalise(problem).d.ld == 6);
    CHECK(to_string(epilogue_of(problem.epilogue.function)) == text);
  }
  CHECK(define_epilogue(parse_epilogue("// pairs halves\n" + two)) !=
        define_epilogue(parse_epilogue("// pairs neighbours\n" + two)));
  CHECK(why("  //pairs  neighbours \r\n" + two) == "");
  CHECK_THAT(why(two),
             ContainsSubstring("line 1: the function takes a pair") && ContainsSubstring("\"// pairs halves\""));
  CHECK_THAT(why("// pairs thirds\n" + two), ContainsSubstring("line 2: the function takes a pair"));
  CHECK_THAT(why("// pairs halves and more\n" + two), ContainsSubstring("line 2: the function takes a pair"));
  CHECK_THAT(why("// pairs halves\n" + one), ContainsSubstring("line 2: the function is not one of a pair") &&
                                                 ContainsSubstring("float gate, float up"));
  CHECK_THAT(why("// pairs halves\nconstexpr float y = 1;\n"),
             ContainsSubstring("there is no function") && ContainsSubstring("float gate, float up"));
  CHECK_THAT(why("// pairs halves\n" + one + two), ContainsSubstring("line 3: a second function \"epilogue\""));
  CHECK_THAT(why(two + "\n" + one), ContainsSubstring("line 3: a second function \"epilogue\""));
  CHECK_THAT(why("// operand in s scalar\n// pairs halves\n" + two),
             ContainsSubstring("line 2: pairs come first, once, before operands"));
  CHECK_THAT(why("// pairs halves\n// pairs halves\n" + two), ContainsSubstring("line 2: pairs come first"));
  // Errors count the line of pairs.
  CHECK_THAT(why("// pairs halves\n// operand in s scalar\n" + two + "float y = 1;\n"),
             ContainsSubstring("line 4: \"float\" begins nothing"));
  // Commas of what is nested are no parameters'.
  CHECK(why("__device__ float epilogue(float x, const Args&, Out&) { return fmaxf(fminf(x, 1), 0); }") == "");
}

TEST_CASE("Pairs need an even N, and leave no place for C", "[gated_epilogue]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  Context context(on_emulator(cache.path(), random));
  const auto why = [&](const Problem& p) { return refusal(ErrorCode::invalid_problem, [&] { context.plan(p); }); };
  Problem problem = problem_of(8, 7, 8);
  problem.epilogue.function = define_epilogue(parse_epilogue("// pairs halves\n" + difference.text));
  CHECK_THAT(why(problem), ContainsSubstring("n = 7 is odd") && ContainsSubstring("give an even n"));
  problem.n = 8;
  CHECK(why(problem) == "");
  problem.beta = 1;
  CHECK_THAT(why(problem), ContainsSubstring("beta is given beside an epilogue of one's own"));
  problem.beta = 0;
  problem.d.ld = 3;
  CHECK_THAT(why(problem), ContainsSubstring("ldd = 3 is less than one row (column) of 4 elements"));
  problem.d.ld = 4;
  CHECK(context.plan(problem).explain().find("columns j and N / 2 + j are one of D, which is 8 x 4") !=
        std::string::npos);
}

TEST_CASE("Pairs halve what is stored, and are served by what their problem without them was tuned to",
          "[gated_epilogue][emulator]") {
  Problem plain = problem_of(4096, 4096, 64, f16), own = plain;
  own.epilogue.function =
      define_epilogue(parse_epilogue("// pairs halves\n// operand in a matrix f16\n// operand in c along_n f32\n"
                                     "__device__ float epilogue(float gate, float up, const Args& args, Out&) { return "
                                     "gate * up + args.a + args.c; }"));
  CHECK(minimum_bytes(normalise(plain)) - minimum_bytes(normalise(own)) == 4096.0 * 2048 * (4 - 2 - 2) - 2048 * 4);
  CHECK(epilogue_bytes_per_sum(own) == (2 + 2) / 2.0);

  const TemporaryDirectory cache;
  Random random(test_seed());
  plain = problem_of(40, 48, 64);
  ContextOptions options = on_emulator(cache.path(), random);
  options.tuning = Tuning::on;
  Context context(options);
  const KernelConfig best = context.tune(plain).plan.config;
  own = plain;
  own.epilogue.function = define_epilogue(parse_epilogue("// pairs neighbours\n" + difference.text));
  const auto tuned = context.counters().tuned;
  const NormalProblem without = without_epilogue_function(normalise(own));
  CHECK(equal(without, normalise(plain)));
  const DeviceInfo device = make_emulator_backend({})->device();
  CHECK((context.plan(own).config == best || !why_illegal(best, normalise(own), device).empty()));
  CHECK_THAT(context.plan(own).why, !ContainsSubstring("measure first"));
  CHECK(context.counters().tuned == tuned);
}

TEST_CASE("What a configuration may be of pairs follows from groups of 8 of them", "[gated_epilogue]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  ContextOptions options = on_emulator(cache.path(), random);
  options.device = Device::compile_only;
  options.architecture = "sm_90a";
  Context context(options);
  Problem problem = problem_of(4096, 8192, 4096, f16);
  problem.epilogue.function = define_epilogue(parse_epilogue("// pairs halves\n" + difference.text));
  const auto why = [&](const std::string& config) {
    return refusal(ErrorCode::invalid_config, [&] { context.plan(problem, parse_kernel_config(config)); });
  };
  CHECK(why("sm90 128x208x64 group_m=8 stages=3 warps=8 schedule=data_parallel") == "");
  CHECK_THAT(why("sm90 128x200x64 group_m=8 stages=3 warps=8 schedule=data_parallel"),
             ContainsSubstring("a multiple of 8 rows, of pairs 16"));
  CHECK(why("sm90 128x200x64 group_m=8 stages=3 warps=8 swap_ab=true schedule=data_parallel") == "");
  CHECK_THAT(why("sm90 128x48x64 group_m=8 stages=3 warps=8 cluster=2x1x1 schedule=data_parallel"),
             ContainsSubstring("a multiple of 8 rows, of pairs 16"));
  CHECK_THAT(why("sm90 64x96x64 group_m=8 stages=8 warps=4 cluster=1x1x4 schedule=data_parallel"),
             ContainsSubstring("a multiple of 8 columns, of pairs 16"));
  problem.b.layout = Layout::row_major;
  CHECK_THAT(why("sm90 128x128x64 group_m=8 stages=3 warps=8 schedule=data_parallel"),
             ContainsSubstring("takes pairs of columns of a row-major B of 16-bit elements packed"));
  CHECK(why("sm90 128x128x64 group_m=8 stages=3 warps=8 schedule=data_parallel pack=b") == "");
  // The model chooses the Hopper loop for all of them, packed where it has to be.
  for (const Pairing pairs : pairings)
    for (const Layout layout : {Layout::column_major, Layout::row_major}) {
      problem.b.layout = layout;
      problem.epilogue.function = define_epilogue(parse_epilogue(line_of(pairs) + difference.text));
      const Plan plan = context.plan(problem);
      CAPTURE(to_string(plan.config));
      CHECK(plan.config.main_loop == MainLoop::sm90);
      CHECK(plan.config.pack_b == (layout == Layout::row_major));
    }
}

TEST_CASE("The widest tiles with pairs compile with NVRTC and spill nothing", "[gated_epilogue][nvrtc]") {
  const auto backend = make_compile_only_backend("sm_90a");
  try {
    backend->compiler_version();
  } catch (const Error&) {
    SKIP("no NVRTC");
  }
  Problem problem = problem_of(4096, 8192, 4096, bf16);
  problem.a.type = problem.b.type = bf16;
  problem.epilogue.function = define_epilogue(parse_epilogue(
      "// pairs neighbours\n// operand in limit scalar\n// operand in alpha scalar\n// operand in bias along_n bf16\n"
      "__device__ float epilogue(float gate, float up, const Args& args, Out&) {\n"
      "  const float g = fminf(gate + args.bias, args.limit), u = fmaxf(fminf(up, args.limit), -args.limit);\n"
      "  return (u + 1) * g * sigmoid(-args.alpha * float(log2_e) * g);\n"
      "}\n"));
  for (const char* config :
       {"sm90 128x256x64 stages=4 warps=8 cluster=2x1x1", "sm90 256x160x64 stages=2 warps=8 schedule=stream_k",
        "sm90 256x160x64 stages=2 warps=8 swap_ab=true", "sm90 192x192x64 stages=3 warps=12 swap_ab=true",
        "sm90 128x160x64 stages=4 warps=8 consumers=ping_pong", "sm90 64x256x64 stages=4 warps=4 cluster=1x1x2"}) {
    CAPTURE(config);
    const KernelConfig parsed = parse_kernel_config(config);
    for (const std::int64_t n : {8192, 8190}) {
      // Of a D that TMA does not store, swapped operands leave it from registers, too few for the widest.
      if (n % 16 != 0 && parsed.swap_ab && parsed.block_m == 256) continue;
      problem.n = n;
      const KernelBinary binary = backend->compile(generate(normalise(problem), parsed, backend->device()));
      CHECK(binary.registers > 0);
      CHECK(binary.spill_bytes == 0);
    }
  }
}

TEST_CASE("A B that is packed slab by slab has both columns of a pair in one", "[gated_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  TestDevice device(on_emulator(cache.path(), random));
  struct Slabs {
    const char* config;
    DataType type;
    std::int64_t n, k;
  };
  for (const auto& [text, type, n, k] :
       {Slabs{"sm90 64x32x64 group_m=8 stages=2 warps=4 schedule=data_parallel pack=b", f16, 208, 190000},
        Slabs{"sm90 64x16x32 group_m=8 stages=2 warps=4 swap_ab=true schedule=data_parallel pack=b", tf32, 144,
              130000}})
    for (const Pairing pairs : pairings)
      for (const Layout layout : {Layout::row_major, Layout::column_major}) {
        const KernelConfig config = parse_kernel_config(text);
        Problem problem = problem_of(3, n, k, f32, layout);
        problem.a.type = problem.b.type = type;
        problem.epilogue.function = define_epilogue(parse_epilogue(line_of(pairs) + everything.text));
        CAPTURE(to_string(problem), int(pairs));
        const NormalProblem normal = normalise(problem);
        const Slab slab = slab_of(normal, config);
        CHECK((slab.columns > 0 && slab.columns < n));
        CHECK(run(device, problem, pairs, everything, random, {.config = &config}) == "");
        problem.n = n + 2;  // no whole groups of pairs
        CHECK(slab_of(normalise(problem), config).rows == 0);
      }
}

TEST_CASE("On a GPU, pairs meet as on the emulator", "[gated_epilogue][gpu]") {
  if (cuda_devices().empty()) SKIP("no CUDA device");
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  ContextOptions options = on_emulator(cache.path(), random);
  options.device = Device::cuda;
  TestDevice device(options);
  meets_in_each_configuration(device, random);
  layouts_and_types(device, random);
  sources_of_pairs(device, random);
}
