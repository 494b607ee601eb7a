#pragma once

// Epilogues of the caller's own, run and held to what they mean. Sums are of small integers, so that they are exact and
// what the function makes of them is known to the bit.
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "reference.hpp"

namespace jitgemm::test::own_epilogues {

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

inline double rounded(double x, DataType type) {
  unsigned char bytes[8];
  store(x, bytes, 0, type);
  return load(bytes, 0, type);
}

inline ContextOptions on_emulator(const std::string& cache) {
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
inline std::string run(TestDevice& device, Problem problem, const Case& one, const KernelConfig* config, Random& random,
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
    const bool is_packed = v.operand.shape == OperandShape::matrix && pad == 0;
    EpilogueValue value{.scalar = v.scalar, .ld = is_packed ? 0 : v.ld, .stride = is_packed ? packed_stride : v.stride};
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
inline const Case everything{
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

inline const Case identity{"__device__ float epilogue(float x, const Args&, Out&) { return x; }",
                           [](double x, const std::vector<double>&, int, int, int) { return std::vector<double>{x}; }};

inline Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DataType d = f32) {
  return {.m = m, .n = n, .k = k, .a = {f16}, .b = {f16, Layout::column_major}, .d = {d}};
}

}  // namespace jitgemm::test::own_epilogues
