#pragma once

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
#include "core/element.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "exact_memory.hpp"
#include "jitgemm/jitgemm.hpp"
#include "random.hpp"
#include "reference.hpp"
#include "sandbox.hpp"

// Calls with an epilogue of pairs of columns. Sums are of small integers, so that they are exact and what the function
// makes of them is known to the bit. Operands end where their memory does: what reads beyond them stops the test.
namespace jitgemm::test::gated {

inline constexpr std::array pairings{Pairing::halves, Pairing::neighbours};

inline std::string line_of(Pairing pairs) {
  return pairs == Pairing::halves ? "// pairs halves\n" : "// pairs neighbours\n";
}

/// Of sums, operands in their order, row, column and batch of D: the result, and the outputs.
using Meaning = std::function<std::vector<double>(double gate, double up, const std::vector<double>& in, double row,
                                                  double column, double batch)>;
struct Case {
  std::string text;  // without its line of pairs
  Meaning meaning;
};

inline const Case everything{
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

inline const Case difference{
    "__device__ float epilogue(float gate, float up, const Args&, Out&) { return 2 * gate - up; }\n",
    [](double gate, double up, const std::vector<double>&, double, double, double) {
      return std::vector<double>{2 * gate - up};
    }};

inline double rounded(double x, DataType type) {
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

/// Of a side, one for each of its rows (columns) at each k: powers of two, so that what they multiply stays exact.
struct SideScales {
  TestDevice::Buffer buffer;
  Scaling scaling;
  std::int64_t ld, stride;  // of blocks, from 128 to the next; from one matrix's to the next's

  double at(std::int64_t matrix, std::int64_t row, std::int64_t k) const {
    const std::int64_t i = scaling == Scaling::value         ? 0
                           : scaling == Scaling::vector      ? row
                           : scaling == Scaling::block_1x128 ? k / 128 * ld + row
                                                             : row / 128 * ld + k / 128;
    return load(buffer.host(), matrix * stride + i, f32);
  }
};

/// `count` of them.
inline SideScales side_scales(TestDevice& device, const Matrix& side, std::int64_t count, std::int64_t ld,
                              std::int64_t stride, Random& random) {
  SideScales scales{device.buffer(count, f32, 0, nullptr), side.scaling, ld, stride};
  for (std::int64_t i = 0; i < count; ++i)
    store(std::ldexp(random.between(0, 3) == 0 ? -1 : 1, random.between(-2, 1)), scales.buffer.host(), i, f32);
  return scales;
}

struct How {
  const KernelConfig* config = nullptr;
  std::int64_t pad = 0;  // elements between rows of B, D and the operands
  float scale_d = 1;     // of 8-bit D
  /// Of A's or B's scales, one that is another number to what is expected than to the call.
  std::int64_t missed_a = -1, missed_b = -1;
};

/// Runs it and says which element is wrong first; empty if none is.
inline std::string run(TestDevice& device, Problem problem, Pairing pairs, const Case& one, Random& random,
                       How how = {}) {
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

  const bool scaled = is_fp8(problem.a.type);
  const NormalProblem normal = normalise(problem);
  const SideScales scales_a = side_scales(device, problem.a, scaled ? scales_of_a(normal) : 0,
                                          scale_ld(problem.a.scaling, m, k),
                                          is_of_blocks(problem.a.scaling) ? scale_stride_a(normal) : 0, random),
                   scales_b = side_scales(device, problem.b, scaled ? scales_of_b(normal) : 0,
                                          scale_ld(problem.b.scaling, n, k),
                                          is_of_blocks(problem.b.scaling) ? scale_stride_b(normal) : 0, random);

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
      value.ld = is_matrix && how.pad > 0 ? ldd : 0;
      value.stride = is_matrix ? (how.pad > 0 ? ldd * m : packed_stride) : v.ld;
    }
    values.push_back(std::move(v));
    given.push_back(value);
  }
  Operands operands{.a = a.to_device(),
                    .b = b.to_device(),
                    .d = d.to_device(),
                    .epilogue = given.data(),
                    .epilogue_count = given.size()};
  if (scaled) {
    operands.scale_a = reinterpret_cast<const float*>(scales_a.buffer.to_device());
    operands.scale_b = reinterpret_cast<const float*>(scales_b.buffer.to_device());
  }
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
  for (const auto& [scales, missed] : {std::pair{&scales_a, how.missed_a}, {&scales_b, how.missed_b}})
    if (missed >= 0) store(4 * load(scales->buffer.host(), missed, f32), scales->buffer.host(), missed, f32);

  for (std::int64_t z = 0; z < batch; ++z)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        const auto sum = [&](std::int64_t column) {
          double total = 0;
          for (std::int64_t p = 0; p < k; ++p)
            total += load(a.host(), (z * m + i) * k + p, problem.a.type) *
                     load(b.host(), n_major ? (z * k + p) * ldb + column : (z * n + column) * ldb + p, problem.b.type) *
                     (scaled ? scales_a.at(z, i, p) * scales_b.at(z, column, p) : 1);
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

inline Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DataType d = f32,
                          Layout layout_b = Layout::column_major) {
  return {.m = m, .n = n, .k = k, .a = {f16}, .b = {f16, layout_b}, .d = {d}};
}

inline ContextOptions on_emulator(const std::string& cache, Random& random) {
  ContextOptions options;
  options.device = Device::emulator;
  options.tuning = Tuning::off;
  options.cache_dir = cache;
  options.emulator_seed = random.next();
  return options;
}

/// Runs a function of a device and random numbers on an emulator with a cache of its own; the test's seed draws both.
template <typename Cases>
void run_emulated(const Cases& cases) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  const TemporaryDirectory cache;
  Random random(test_seed());
  TestDevice device(on_emulator(cache.path(), random));
  cases(device, random);
}

}  // namespace jitgemm::test::gated
