#include "gemm_cases.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "gemm_choices.hpp"
#include "jitgemm/error.hpp"
#include "kernels/legality.hpp"
#include "random.hpp"
#include "reference.hpp"

namespace jitgemm::test {
namespace {

std::int64_t inner_a(const Problem& p) { return p.a.layout == Layout::row_major ? p.k : p.m; }
std::int64_t inner_b(const Problem& p) { return p.b.layout == Layout::row_major ? p.n : p.k; }

/// Aligns every row start of an operand to `align` bytes, and some of them to no more: by the pointer, or by the
/// leading dimension, which is `slack` longer than packed.
void place(int align, bool by_pointer, std::int64_t inner, std::int64_t slack, DataType type, std::int64_t& ld,
           int& problem_align, int& offset) {
  const auto size = std::int64_t(size_of(type));
  align = align == 2 && size == 1 ? 1 : std::max(align, int(size));
  ld = (inner + slack) * size;
  ld = (ld + 15) / 16 * 16;
  offset = 0;
  if (align < 16 && by_pointer) offset = align;
  if (align < 16 && !by_pointer) ld += align;
  ld /= size;
  problem_align = align;
}

/// All bits set is NaN in every type that has one.
std::vector<char> nan_image(std::size_t bytes) { return std::vector<char>(bytes, char(0xff)); }

void fill_elements(std::vector<char>& image, std::size_t offset, const OperandMatrix& s, Fill fill, int magnitude,
                   Random& random) {
  const std::int64_t matrices = s.stride == 0 ? 1 : s.batch;
  for (std::int64_t batch = 0; batch < matrices && !s.empty(); ++batch) {
    for (std::int64_t vector = 0; vector < s.vectors; ++vector) {
      for (std::int64_t i = 0; i < s.extent; ++i) {
        double x;
        if (fill == Fill::integers) {
          x = random.between(-magnitude, magnitude);
        } else if (s.type != s32 && info_of(s.type).is_integer()) {
          const auto bits = std::uint16_t(random.next());  // any value
          x = load(&bits, 0, s.type);
        } else {
          const std::uint64_t bits = random.next();
          x = -2;
          for (int part = 0; part < 64; part += 16) x += double(bits >> part & 0xffff) * 0x1p-16;
          x *= 1.7320508;
        }
        store(x, image.data() + offset, batch * s.stride + vector * s.ld + i, s.type);
      }
    }
  }
}

OperandMatrix bias_of(const Problem& p) {
  const std::int64_t elements = bias_elements(p);
  return {elements, 1, matrix_c(p).type, elements, 1, 0};
}

}  // namespace

void place_all(GemmCase& gemm, std::array<int, 4> align, bool by_pointer, std::int64_t slack) {
  Problem& p = gemm.problem;
  const DataType c = matrix_c(p).type;
  gemm.d_is_c = gemm.d_is_c && c == p.d.type;
  place(align[0], by_pointer, inner_a(p), slack, p.a.type, p.a.ld, p.a.alignment, gemm.offset_a);
  place(align[1], !by_pointer, inner_b(p), slack, p.b.type, p.b.ld, p.b.alignment, gemm.offset_b);
  place(align[2], !by_pointer, p.n, slack, c, p.c.ld, p.c.alignment, gemm.offset_c);
  place(align[3], by_pointer, p.n, slack, p.d.type, p.d.ld, p.d.alignment, gemm.offset_d);
  if (gemm.d_is_c) {
    p.c.ld = p.d.ld;
    p.c.stride = p.d.stride;
    p.c.alignment = p.d.alignment;
    gemm.offset_c = gemm.offset_d;
  }
  p = normalise(p);
}

std::string to_string(const GemmCase& gemm) {
  std::string text = to_string(gemm.problem) + " | " + to_string(gemm.config);
  if (gemm.d_is_c) text += " | D is C";
  if (gemm.scales != decltype(gemm.scales){}) text += " | scaled";
  return text;
}

bool exact_with_integers(const GemmCase& gemm) {
  const bool cut_off = is_fp8(gemm.problem.a.type) && gemm.config.main_loop == MainLoop::sm90 &&
                       gemm.problem.accumulation == Accumulation::fast;
  return expected_of(gemm.problem.epilogue.activation).exact && !cut_off;
}

Scales scales_of(const GemmCase& gemm) {
  const auto or_one = [](float scale) { return scale == 0 ? 1.0 : double(scale); };
  const auto single = [](const Matrix& matrix) { return matrix.scaling == Scaling::value; };
  return {(single(gemm.problem.a) ? or_one(gemm.scales[0]) : 1) * (single(gemm.problem.b) ? or_one(gemm.scales[1]) : 1),
          or_one(gemm.scales[2])};
}

GemmCase plain_case(const Problem& problem, const KernelConfig& config, std::array<int, 4> align, bool d_is_c) {
  GemmCase gemm;
  gemm.problem = problem;
  gemm.config = config;
  gemm.d_is_c = d_is_c;
  place_all(gemm, align, true, 0);
  return gemm;
}

GemmInputs make_inputs(const GemmCase& gemm, Fill fill, std::uint64_t seed) {
  const Problem& p = gemm.problem;
  Random random(seed);
  GemmInputs inputs;
  inputs.fill = fill;
  const auto make = [&](std::vector<char>& image, int offset, const OperandMatrix& s, bool is_read, int magnitude) {
    image = nan_image(std::size_t(offset) + std::size_t(s.batch_bytes()));
    if (is_read) fill_elements(image, std::size_t(offset), s, fill, magnitude, random);
  };
  make(inputs.a, gemm.offset_a, matrix_a(p), reads_ab(p), 3);
  make(inputs.b, gemm.offset_b, matrix_b(p), reads_ab(p), 3);
  make(inputs.c, gemm.offset_c, matrix_c(p), reads_c(p), 8);
  const auto make_scales = [&](std::vector<float>& scales, const Matrix& matrix, std::int64_t count) {
    if (matrix.scaling == Scaling::value) return;
    scales.resize(std::size_t(count), NAN);
    for (float& scale : scales) {
      if (!reads_ab(p)) continue;
      scale = std::ldexp(fill == Fill::integers ? 1.0f : 1 + float(random.uniform()), random.between(-2, 1));
      if (random.between(0, 3) == 0) scale = -scale;
    }
  };
  make_scales(inputs.scales_a, p.a, scales_of_a(p));
  make_scales(inputs.scales_b, p.b, scales_of_b(p));
  make(inputs.bias, 0, bias_of(p), p.epilogue.bias != Bias::none, 8);
  inputs.d = nan_image(2 * d_guard_bytes + std::size_t(gemm.offset_d) + std::size_t(matrix_d(p).batch_bytes()));
  if (gemm.d_is_c) {
    std::copy(inputs.c.begin() + gemm.offset_c, inputs.c.end(),
              inputs.d.begin() + std::ptrdiff_t(d_guard_bytes) + gemm.offset_d);
  }
  return inputs;
}

std::string check(const GemmCase& gemm, const GemmInputs& inputs, const std::vector<char>& d) {
  const Problem& p = gemm.problem;
  const std::size_t begin = d_guard_bytes + std::size_t(gemm.offset_d);
  std::vector<char> beside = d;  // D's elements put back to what they were
  const auto row_bytes = std::size_t(p.n) * size_of(p.d.type);
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      const std::size_t at = begin + std::size_t(batch * p.d.stride + row * p.d.ld) * size_of(p.d.type);
      std::memcpy(&beside[at], &inputs.d[at], row_bytes);
    }
  }
  if (beside != inputs.d) {
    const auto first = std::mismatch(beside.begin(), beside.end(), inputs.d.begin()).first - beside.begin();
    return "byte " + std::to_string(first - std::ptrdiff_t(begin)) + " from D's begin is written, beside its elements";
  }

  const Operands operands{.a = inputs.a.data() + gemm.offset_a,
                          .b = inputs.b.data() + gemm.offset_b,
                          .c = inputs.c.data() + gemm.offset_c,
                          .d = nullptr,
                          .bias = inputs.bias.data(),
                          .scale_a = inputs.scales_a.data(),
                          .scale_b = inputs.scales_b.data()};
  Reference expected = reference(p, operands, gemm.config.main_loop, scales_of(gemm));
  if (inputs.fill == Fill::integers && exact_with_integers(gemm)) {  // float64 is exact here, too: D is its rounding
    for (std::size_t i = 0; i < expected.d.size(); ++i) {
      double rounded;
      store(expected.d[i], &rounded, 0, p.d.type);
      expected.d[i] = load(&rounded, 0, p.d.type);
      expected.bound[i] = 0;
    }
  }
  return violation(expected, p, d.data() + begin);
}

std::string run_and_check(GemmDevice& device, const GemmCase& gemm, Fill fill, std::uint64_t seed) {
  const auto report = [&](const std::string& what) {
    return to_string(gemm) + ", inputs " + std::to_string(seed) + ": " + what;
  };
  try {
    const GemmInputs inputs = make_inputs(gemm, fill, seed);
    const std::string wrong = check(gemm, inputs, device.run(gemm, inputs));
    return wrong.empty() ? "" : report(wrong);
  } catch (const Error& error) {
    return report(std::string(error.what()) + "\n" + error.log());
  }
}

}  // namespace jitgemm::test
