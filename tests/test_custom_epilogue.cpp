// Epilogues of the caller's own (jitgemm/epilogue.hpp), on the emulator and on a GPU. Sums are of small integers, so
// that they are exact and what the function makes of them is known to the bit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/element.hpp"
#include "core/problem.hpp"
#include "errors.hpp"
#include "jit/arguments.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "reference.hpp"
#include "sandbox.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// One operand's memory, with a canary of NaN around what is the operand's.
struct Values {
  EpilogueOperand operand;
  std::int64_t ld = 0, stride = packed_stride;
  double scalar = 0;
  std::vector<unsigned char> bytes;
  std::int64_t shift = 0;  // elements in front, which decides the alignment
};

/// What a function makes of a sum, given each input's value at the element; outputs follow the result.
using Meaning =
    std::function<std::vector<double>(double x, const std::vector<double>& in, int row, int column, int batch)>;

struct Case {
  std::string text;
  Meaning meaning;
};

double rounded(double x, DataType type) {
  unsigned char bytes[8];
  store(x, bytes, 0, type);
  return load(bytes, 0, type);
}

ContextOptions on_emulator(const std::string& cache) {
  ContextOptions options;
  options.device = Device::emulator;
  options.tuning = Tuning::off;
  options.cache_dir = cache;
  return options;
}

/// A Context and where its operands lie.
class TestDevice {
 public:
  explicit TestDevice(const ContextOptions& options)
      : context(options), gpu_(options.device == Device::cuda ? make_cuda_backend() : nullptr) {}

  Context context;

  /// The bytes as the device has them: where they are, or a copy that put_back() brings back.
  unsigned char* put(std::vector<unsigned char>& bytes) {
    if (!gpu_) return bytes.data();
    void* const memory = gpu_->allocate(bytes.size());
    gpu_->copy_to_device(memory, bytes.data(), bytes.size());
    copies_.push_back({memory, &bytes});
    return static_cast<unsigned char*>(memory);
  }
  void put_back() {
    if (gpu_) gpu_->synchronize(nullptr);
    for (const auto& [memory, bytes] : copies_) {
      gpu_->copy_to_host(bytes->data(), memory, bytes->size());
      gpu_->release(memory);
    }
    copies_.clear();
  }

 private:
  std::unique_ptr<Backend> gpu_;
  std::vector<std::pair<void*, std::vector<unsigned char>*>> copies_;
};

/// Runs it and says which element is wrong first; empty if none is.
std::string run(TestDevice& device, Problem problem, const Case& one, const KernelConfig* config, Random& random,
                std::int64_t pad = 0, std::int64_t shift = 0) {
  const EpilogueFunction function = parse_epilogue(one.text);
  problem.epilogue.function = define_epilogue(function);
  const DataType accumulator = problem.a.type == f64 ? f64 : problem.a.type == s8 ? s32 : f32;
  const std::int64_t m = problem.m, n = problem.n, k = problem.k, batch = problem.batch;
  const auto fill = [&](std::int64_t count, DataType type) {
    std::vector<unsigned char> bytes(std::size_t(count) * size_of(type) + 16);
    for (std::int64_t i = 0; i < count; ++i) store(random.between(-2, 2), bytes.data(), i, type);
    return bytes;
  };
  std::vector<unsigned char> a = fill(m * k * batch, problem.a.type), b = fill(k * n * batch, problem.b.type);
  std::vector<unsigned char> d(std::size_t(m * n * batch) * size_of(problem.d.type), 0xff);
  std::vector<Values> values;
  std::vector<EpilogueValue> given;
  for (const EpilogueOperand& operand : function.operands) {
    Values v;
    v.operand = operand;
    if (operand.shape == OperandShape::scalar) {
      v.scalar = random.between(-3, 3);
    } else {
      const std::int64_t length = operand.shape == OperandShape::along_m ? m : n;
      const bool is_matrix = operand.shape == OperandShape::matrix;
      v.ld = is_matrix ? n + pad : 0;
      v.shift = shift;
      v.stride = is_matrix ? v.ld * m : length;
      const std::int64_t count = shift + v.stride * batch;
      v.bytes = operand.output ? std::vector<unsigned char>(std::size_t(count) * size_of(operand.type), 0xff)
                               : fill(count, operand.type);
    }
    values.push_back(std::move(v));
  }
  for (Values& v : values) {
    EpilogueValue value{.scalar = v.scalar, .ld = v.ld, .stride = v.stride};
    unsigned char* const data = device.put(v.bytes) + v.shift * std::int64_t(size_of(v.operand.type));
    if (v.operand.shape != OperandShape::scalar) (v.operand.output ? value.out : const_cast<void*&>(value.in)) = data;
    given.push_back(value);
  }
  const Operands operands{.a = device.put(a),
                          .b = device.put(b),
                          .d = device.put(d),
                          .epilogue = given.data(),
                          .epilogue_count = given.size()};
  if (config)
    device.context.gemm(problem, operands, nullptr, *config);
  else
    device.context.gemm(problem, operands);
  device.put_back();

  for (std::int64_t z = 0; z < batch; ++z)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < k; ++p)
          sum += load(a.data(), (z * m + i) * k + p, problem.a.type) *
                 load(b.data(), problem.b.layout == Layout::row_major ? (z * k + p) * n + j : (z * n + j) * k + p,
                      problem.b.type);
        std::vector<double> in;
        const auto place = [&](const Values& v) {
          return v.shift + z * v.stride +
                 (v.operand.shape == OperandShape::along_m   ? i
                  : v.operand.shape == OperandShape::along_n ? j
                                                             : i * v.ld + j);
        };
        for (const Values& v : values)
          if (!v.operand.output)
            in.push_back(v.operand.shape == OperandShape::scalar ? v.scalar
                                                                 : load(v.bytes.data(), place(v), v.operand.type));
        const std::vector<double> expected = one.meaning(problem.alpha * sum, in, int(i), int(j), int(z));
        const std::string at = " at " + std::to_string(z) + ", " + std::to_string(i) + ", " + std::to_string(j);
        const double got = load(d.data(), (z * m + i) * n + j, problem.d.type);
        if (got != rounded(rounded(expected[0], accumulator), problem.d.type))
          return "D is " + std::to_string(got) + ", expected " + std::to_string(expected[0]) + at;
        std::size_t output = 1;
        for (const Values& v : values) {
          if (!v.operand.output) continue;
          const double out = load(v.bytes.data(), place(v), v.operand.type);
          if (out != rounded(expected[output], v.operand.type))
            return v.operand.name + " is " + std::to_string(out) + ", expected " + std::to_string(expected[output]) +
                   at;
          ++output;
        }
      }
  for (const Values& v : values) {  // gaps stay as they were
    if (!v.operand.output) continue;
    const auto size = std::int64_t(size_of(v.operand.type));
    for (std::int64_t i = 0; i < v.shift * size; ++i)
      if (v.bytes[std::size_t(i)] != 0xff) return v.operand.name + " is written in front of";
    for (std::int64_t row = 0; row < m * batch; ++row)
      for (std::int64_t i = (v.shift + row * v.ld + n) * size; i < (v.shift + row * v.ld + v.ld) * size; ++i)
        if (v.bytes[std::size_t(i)] != 0xff) return v.operand.name + " is written beyond a row's end";
  }
  return {};
}

// All that there is to an operand, of each shape and direction, and all that Args has besides.
const Case everything{
    "// operand in residual matrix bf16\n// operand in bias along_n f16\n// operand out before matrix f32\n"
    "// operand in scale along_m f32\n// operand in limit scalar\n// operand out half matrix f16\n"
    "__device__ float twice(float x) { return x + x; }\n"
    "constexpr float step = 2;\n"
    "__device__ float epilogue(float x, const Args& args, Out& out) {\n"
    "  out.before = x;\n"
    "  out.half = x - args.limit;\n"
    "  return twice(x) * args.scale + args.residual * step + args.bias + float(args.row + 2 * args.column + 3 * "
    "args.batch);\n"
    "}\n",
    [](double x, const std::vector<double>& in, int row, int column, int batch) {
      return std::vector<double>{2 * x * in[2] + 2 * in[0] + in[1] + row + 2 * column + 3 * batch, x, x - in[3]};
    }};

const Case identity{"__device__ float epilogue(float x, const Args&, Out&) { return x; }",
                    [](double x, const std::vector<double>&, int, int, int) { return std::vector<double>{x}; }};

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DataType d = f32) {
  return {.m = m, .n = n, .k = k, .a = {f16}, .b = {f16, Layout::column_major}, .d = {d}};
}

/// By every way out of a kernel.
void is_called_for_each_element(TestDevice& device, Random& random) {
  const char* const configs[] = {
      "sm80 64x64x32 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "sm80 32x32x32 group_m=1 stages=2 warps=2 schedule=split_k splits=3",
      "sm80 64x32x32 group_m=8 stages=2 warps=2 schedule=stream_k grid=3",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=data_parallel",
      "sm90 128x40x64 group_m=8 stages=2 warps=8 swap_ab=true schedule=data_parallel",
      "sm90 128x72x64 group_m=8 stages=2 warps=8 schedule=persistent grid=2",
      "sm90 64x32x64 group_m=8 stages=3 warps=8 consumers=ping_pong schedule=persistent grid=2",
      "sm90 64x32x64 group_m=8 stages=4 warps=4 cluster=1x2x1 schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=4 warps=4 cluster=1x1x2 swap_ab=true schedule=data_parallel",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 schedule=split_k splits=2",
      "sm90 64x32x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=split_k splits=2",
  };
  for (const char* const text : configs) {
    const KernelConfig config = parse_kernel_config(text);
    for (const DataType d : {f32, f16}) {
      const Problem problem =
          problem_of(random.between(1, 9) * 11, random.between(3, 12) * 8, random.between(1, 4) * 72, d);
      CAPTURE(text, to_string(problem));
      const std::int64_t pad = random.between(0, 3), shift = random.between(0, 3);
      CAPTURE(pad, shift);
      CHECK(run(device, problem, everything, &config, random, pad, shift) == "");
    }
  }
}

void edges_batches_layouts_and_types(TestDevice& device, Random& random) {
  for (Problem problem :
       {problem_of(1, 1, 1), problem_of(37, 41, 19), problem_of(3, 129, 65), problem_of(65, 7, 128, f16)}) {
    for (const int batch : {1, 3}) {
      problem.batch = batch;
      for (const Layout layout : {Layout::row_major, Layout::column_major}) {
        problem.b.layout = layout;
        CAPTURE(to_string(problem));
        CHECK(run(device, problem, everything, nullptr, random, 1, 1) == "");
        CHECK(run(device, problem, identity, nullptr, random) == "");
      }
    }
  }
  Problem fp8 = problem_of(33, 48, 64, bf16);
  fp8.a.type = e4m3, fp8.b.type = e5m2;
  CHECK(run(device, fp8, everything, nullptr, random) == "");
  const Case doubles{
      "// operand in c matrix f64\n// operand in s scalar\n"
      "__device__ double epilogue(double x, const Args& args, Out&) { return fmax(x, args.c) + args.s; }",
      [](double x, const std::vector<double>& in, int, int, int) {
        return std::vector<double>{std::max(x, in[0]) + in[1]};
      }};
  CHECK(run(device, {.m = 20, .n = 12, .k = 9, .a = {f64}, .b = {f64}, .d = {f64}}, doubles, nullptr, random, 1) == "");
  const Case integers{
      "// operand in c matrix s32\n// operand in s scalar\n// operand out raw matrix s32\n"
      "__device__ int epilogue(int x, const Args& args, Out& out) { out.raw = x; return (x > args.c ? x : "
      "args.c) * args.s; }",
      [](double x, const std::vector<double>& in, int, int, int) {
        return std::vector<double>{std::max(x, in[0]) * in[1], x};
      }};
  CHECK(run(device, {.m = 20, .n = 16, .k = 32, .a = {s8}, .b = {s8, Layout::column_major}, .d = {s32}}, integers,
            nullptr, random, 1) == "");
}

void without_product(TestDevice& device, Random& random) {
  for (const double alpha : {0.0, -0.5, 2.0}) {
    for (const int k : {0, 64}) {
      Problem problem = problem_of(20, 24, k);
      problem.alpha = alpha;
      CAPTURE(alpha, k);
      CHECK(run(device, problem, everything, nullptr, random) == "");
    }
  }
}

}  // namespace

TEST_CASE("An epilogue of one's own is called for each element, by every way out of a kernel",
          "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  ContextOptions options = on_emulator(cache.path());
  options.emulator_seed = random.next();
  TestDevice device(options);
  is_called_for_each_element(device, random);
}

TEST_CASE("Edges, batches, layouts, packed operands and other types have it too", "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  TestDevice device(on_emulator(cache.path()));
  edges_batches_layouts_and_types(device, random);
}

TEST_CASE("What is multiplied by nothing, and scaled, reaches the function", "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  TestDevice device(on_emulator(cache.path()));
  without_product(device, random);
}

TEST_CASE("On a GPU, epilogues of one's own compute what they do on the emulator", "[custom_epilogue][gpu]") {
  if (cuda_devices().empty()) SKIP("no CUDA device");
  const TemporaryDirectory cache;
  Random random(test_seed());
  CAPTURE(test_seed());
  ContextOptions options = on_emulator(cache.path());
  options.device = Device::cuda;
  TestDevice device(options);
  is_called_for_each_element(device, random);
  edges_batches_layouts_and_types(device, random);
  without_product(device, random);
}

TEST_CASE("A second call compiles nothing, other scalars and operands are run-time arguments",
          "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  {
    TestDevice device(on_emulator(cache.path()));
    CHECK(run(device, problem_of(20, 24, 64), everything, nullptr, random) == "");
    CHECK(device.context.counters().compiles == 1);
    CHECK(run(device, problem_of(20, 24, 64), everything, nullptr, random, 2, 1) == "");
    CHECK(device.context.counters().compiles == 1);
    CHECK(run(device, problem_of(20, 24, 64), identity, nullptr, random) == "");
    CHECK(device.context.counters().compiles == 2);
  }
  TestDevice device(on_emulator(cache.path()));
  CHECK(run(device, problem_of(20, 24, 64), everything, nullptr, random) == "");
  CHECK(device.context.counters().compiles == 0);
}

TEST_CASE("An epilogue tunes nothing, and is served by what its problem without it was tuned to",
          "[custom_epilogue][emulator]") {
  const TemporaryDirectory cache;
  Random random(test_seed());
  const Problem plain = problem_of(40, 48, 64);
  ContextOptions options = on_emulator(cache.path());
  options.tuning = Tuning::on;
  TestDevice device(options);
  const KernelConfig best = device.context.tune(plain).plan.config;
  const auto tuned = device.context.counters().tuned;
  Problem own = plain;
  own.epilogue.function = define_epilogue(parse_epilogue(identity.text));
  CHECK(device.context.plan(own).config == best);
  CHECK(run(device, plain, identity, nullptr, random) == "");
  CHECK(device.context.counters().tuned == tuned);
  CHECK_THAT(device.context.plan(own).why, !ContainsSubstring("measure first"));
}

TEST_CASE("What an epilogue's matrices move is part of what a call is expected to take", "[custom_epilogue]") {
  Problem plain = problem_of(4096, 4096, 64, f16), own = plain;
  own.epilogue.function = define_epilogue(parse_epilogue(
      "// operand in a matrix f16\n// operand out b matrix f32\n// operand in c along_n f32\n// operand in s scalar\n"
      "__device__ float epilogue(float x, const Args& args, Out& out) { out.b = x; return x + args.a + args.c; }"));
  CHECK(minimum_bytes(normalise(own)) - minimum_bytes(normalise(plain)) == 4096.0 * 4096 * 6 + 4096 * 4);
  CHECK(epilogue_bytes_per_sum(own) == 2 + 6);
  ContextOptions options;
  options.device = Device::compile_only;
  options.architecture = "sm_90a";
  options.tuning = Tuning::off;
  const TemporaryDirectory cache;
  options.cache_dir = cache.path().string();
  Context context(options);
  CHECK(context.plan(own).predicted.us > 1.5 * context.plan(plain).predicted.us);
}

TEST_CASE("A launch that begins further down and right in D has its operands from there on", "[custom_epilogue]") {
  Problem problem = problem_of(64, 48, 32);
  problem.batch = 2;
  const EpilogueFunction function = parse_epilogue(everything.text);
  problem.epilogue.function = define_epilogue(function);
  const NormalProblem p = normalise(problem);
  alignas(16) static char memory[4096];
  EpilogueValue values[6];
  for (EpilogueValue& value : values) value = {.in = memory, .out = memory + 2048, .scalar = 3};
  values[0].ld = 50;
  const Operands operands{.epilogue = values, .epilogue_count = 6};
  const auto at = [&](std::int64_t row, std::int64_t column) {
    return make_custom_epilogue_arguments({}, p, operands, row, column);
  };
  const device::CustomEpilogueArguments first = at(0, 0), part = at(5, 8), odd = at(5, 7);
  CHECK(part.first_row == 5);
  CHECK(part.first_column == 8);
  CHECK(first.operands[0].data == memory);
  CHECK(part.operands[0].data == memory + (5 * 50 + 8) * 2);  // residual, bf16
  CHECK(part.operands[0].ld == 50);
  CHECK(part.operands[0].stride == 64 * 50);
  CHECK(part.operands[1].data == memory + 8 * 2);  // bias, f16, along n
  CHECK(part.operands[1].stride == 0);
  CHECK(part.operands[2].data == memory + 2048 + (5 * 48 + 8) * 4);  // before, f32, out
  CHECK(part.operands[3].data == memory + 5 * 4);                    // scale, f32, along m
  CHECK(part.operands[4].data == nullptr);
  CHECK(part.operands[4].scalar.f32 == 3);
  CHECK(part.operands[0].in_pairs == 1);
  CHECK(odd.operands[0].in_pairs == 0);
}

TEST_CASE("Text, digest and problem say the same in every process", "[custom_epilogue]") {
  const EpilogueFunction function = parse_epilogue(everything.text);
  REQUIRE(function.operands.size() == 6);
  CHECK(function.operands[0].name == "residual");
  CHECK(function.operands[0].type == bf16);
  CHECK(function.operands[2].output);
  CHECK(function.operands[3].shape == OperandShape::along_m);
  CHECK(to_string(function) == everything.text);
  const std::uint64_t digest = define_epilogue(function);
  CHECK(digest == define_epilogue(function));
  CHECK(to_string(epilogue_of(digest)) == everything.text);
  CHECK(define_epilogue(parse_epilogue(identity.text)) == 7605484082869353996u);  // in databases, for good
  Problem problem = problem_of(8, 8, 8);
  problem.epilogue.function = digest;
  CHECK(parse_problem(to_string(problem)).epilogue.function == digest);
  EpilogueFunction other = function;
  other.operands[0].type = f16;
  CHECK(define_epilogue(other) != digest);
}

TEST_CASE("An epilogue beside another, unknown, or with other values than it has, is refused", "[custom_epilogue]") {
  const TemporaryDirectory cache;
  Context context(on_emulator(cache.path()));
  Problem problem = problem_of(8, 8, 8);
  problem.epilogue.function = 12345;
  const auto why = [&](const Problem& p) { return refusal(ErrorCode::invalid_problem, [&] { context.plan(p); }); };
  CHECK_THAT(why(problem),
             ContainsSubstring("no epilogue with the digest 12345") && ContainsSubstring("define_epilogue()"));
  problem.epilogue.function = define_epilogue(parse_epilogue(everything.text));
  Problem beside = problem;
  beside.beta = 1;
  CHECK_THAT(why(beside), ContainsSubstring("beta is given beside an epilogue of one's own"));
  beside = problem;
  beside.epilogue.bias = Bias::along_n;
  CHECK_THAT(why(beside), ContainsSubstring("bias is given beside"));
  beside = problem;
  beside.epilogue.activation = Activation::silu;
  CHECK_THAT(why(beside), ContainsSubstring("activation is given beside"));
  beside = problem;
  beside.a.type = beside.b.type = beside.d.type = f64;
  CHECK_THAT(why(beside), ContainsSubstring("operand residual is bf16 where sums are f64"));

  std::vector<float> memory(1024);
  EpilogueValue values[6] = {};
  for (EpilogueValue& value : values) value.in = value.out = memory.data() + 512;
  const auto of_call = [&](const EpilogueValue* given, std::size_t count) {
    return refusal(ErrorCode::invalid_operand, [&] {
      context.gemm(problem, {.a = memory.data(),
                             .b = memory.data() + 64,
                             .d = memory.data() + 128,
                             .epilogue = given,
                             .epilogue_count = count});
    });
  };
  CHECK_THAT(of_call(nullptr, 0), ContainsSubstring("has 6 operands and 0 values"));
  CHECK_THAT(of_call(values, 5), ContainsSubstring("has 6 operands and 5 values"));
  CHECK_THAT(of_call(values, 6), ContainsSubstring("before overlaps"));
  values[2].out = memory.data() + 256;
  values[5].out = memory.data() + 384;
  CHECK(of_call(values, 6) == "");
  values[0].in = nullptr;
  CHECK_THAT(of_call(values, 6), ContainsSubstring("residual is null"));
  values[0].in = reinterpret_cast<const char*>(memory.data()) + 1;
  CHECK_THAT(of_call(values, 6), ContainsSubstring("residual is not a multiple of 2 bytes"));
  values[0].in = memory.data() + 512;
  values[5].out = memory.data() + 128;
  CHECK_THAT(of_call(values, 6), ContainsSubstring("half overlaps D"));
  values[5].out = memory.data() + 2;
  CHECK_THAT(of_call(values, 6), ContainsSubstring("half overlaps A"));
  values[5].out = memory.data() + 384;
  values[2].ld = 7;
  CHECK_THAT(refusal(ErrorCode::invalid_problem, [&] { of_call(values, 6); }),
             ContainsSubstring("ld_before = 7 is less than"));
  problem.epilogue.function = 0;
  CHECK_THAT(of_call(values, 6), ContainsSubstring("an epilogue that the problem does not have"));
}
