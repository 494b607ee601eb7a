#include "core/problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <tuple>

#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

/// A matrix as memory: `vectors` rows (columns) of `extent` adjacent elements.
struct Extents {
  std::int64_t extent, vectors;
};
Extents extents_a(const Problem& p) { return p.layout_a == Layout::row_major ? Extents{p.k, p.m} : Extents{p.m, p.k}; }
Extents extents_b(const Problem& p) { return p.layout_b == Layout::row_major ? Extents{p.n, p.k} : Extents{p.k, p.n}; }
Extents extents_d(const Problem& p) { return {p.n, p.m}; }

std::int64_t packed(const Extents& x) { return std::max<std::int64_t>(1, x.extent); }

/// Bytes from the first element to one past the last.
std::int64_t span_bytes(const Extents& x, std::int64_t ld, DataType type) {
  if (x.extent == 0 || x.vectors == 0) return 0;
  return ((x.vectors - 1) * ld + x.extent) * std::int64_t(size_of(type));
}

/// The largest power of two that divides x, at most 16; 16 for 0.
int alignment_of(std::uint64_t x) { return int((x | 16) & -(x | 16)); }

[[noreturn]] void invalid(ErrorCode code, const std::string& message, const Problem& problem) {
  throw Error(code, message).with_problem(to_string(problem));
}

void check_size(const char* name, std::int64_t size, const Problem& problem) {
  if (size >= 0 && size < (std::int64_t(1) << 31)) return;
  invalid(ErrorCode::invalid_problem,
          std::string(name) + " = " + std::to_string(size) + " is out of range: give 0 to 2^31 - 1", problem);
}

void normalise_matrix(const char* name, const Extents& x, DataType type, std::int64_t& ld, int& align,
                      const Problem& problem) {
  const std::int64_t size = std::int64_t(size_of(type));
  if (ld == 0) ld = packed(x);
  if (ld < packed(x)) {
    invalid(ErrorCode::invalid_problem,
            "ld" + std::string(name) + " = " + std::to_string(ld) + " is less than one row (column) of " +
                std::to_string(packed(x)) + " elements: give at least that, or 0 for packed",
            problem);
  }
  std::int64_t bytes;
  if (__builtin_mul_overflow(ld, std::max<std::int64_t>(1, x.vectors), &bytes) ||
      __builtin_mul_overflow(bytes, size, &bytes)) {
    invalid(
        ErrorCode::invalid_problem,
        "ld" + std::string(name) + " = " + std::to_string(ld) + " makes the matrix larger than 2^63 bytes: lower it",
        problem);
  }
  if (align < size || align > 16 || !std::has_single_bit(unsigned(align))) {
    invalid(ErrorCode::invalid_problem,
            "align_" + std::string(name) + " = " + std::to_string(align) + " is not a power of two from " +
                std::to_string(size) + " to 16: give the bytes that the pointer is a multiple of",
            problem);
  }
  align = std::min(align, alignment_of(std::uint64_t(ld * size)));
}

/// As the kernel gets it; -0 and 0, and all NaN, become one value.
double as_f32(double x) {
  if (std::isnan(x)) return std::numeric_limits<double>::quiet_NaN();
  return double(float(x)) + 0.0;
}

bool same(double x, double y) { return x == y || (x != x && y != y); }

/// Half-open.
struct AddressRange {
  std::uintptr_t begin, end;
  bool overlaps(const AddressRange& other) const { return begin < other.end && other.begin < end; }
};

struct Operand {
  const char* name;
  const void* pointer;
  std::int64_t bytes;

  AddressRange range() const {
    const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
    return {begin, begin + std::uintptr_t(bytes)};
  }
};

void check_pointer(const Operand& operand, std::size_t alignment, const Problem& problem) {
  if (operand.pointer == nullptr) {
    invalid(ErrorCode::invalid_operand, std::string(operand.name) + " is null but the problem uses it: pass its memory",
            problem);
  }
  if (operand.range().begin % alignment != 0) {
    invalid(
        ErrorCode::invalid_operand,
        std::string(operand.name) + " is not a multiple of " + std::to_string(alignment) + " bytes: align the pointer",
        problem);
  }
}

void check_apart(const Operand& written, const Operand& other, const Problem& problem) {
  if (!written.range().overlaps(other.range())) return;
  invalid(ErrorCode::invalid_operand,
          std::string(written.name) + " overlaps " + other.name + " in memory: give " + written.name +
              " memory of its own" + (std::string(other.name) == "C" ? ", or C's pointer and leading dimension" : ""),
          problem);
}

/// TMA clips what it stores to 16 bytes, not to elements: a row of D has to end at such a boundary, too.
int row_end_alignment(const Problem& p) { return alignment_of(std::uint64_t(p.n) * size_of(p.d)); }

}  // namespace

Problem normalise(const Problem& problem) {
  Problem p = problem;
  check_size("m", p.m, problem);
  check_size("n", p.n, problem);
  check_size("k", p.k, problem);
  if (p.a != p.b || p.a == f32) {
    invalid(ErrorCode::invalid_problem,
            "no kernel multiplies a = " + std::string(to_string(p.a)) + " by b = " + std::string(to_string(p.b)) +
                ": use f16 or bf16 for both",
            problem);
  }
  normalise_matrix("a", extents_a(p), p.a, p.lda, p.align_a, problem);
  normalise_matrix("b", extents_b(p), p.b, p.ldb, p.align_b, problem);
  normalise_matrix("c", extents_d(p), p.d, p.ldc, p.align_c, problem);
  normalise_matrix("d", extents_d(p), p.d, p.ldd, p.align_d, problem);
  p.align_d = std::min(p.align_d, row_end_alignment(p));
  p.alpha = as_f32(p.alpha);
  p.beta = as_f32(p.beta);
  p.slope = p.activation == Activation::leaky_relu ? as_f32(p.slope) : Problem{}.slope;
  if (!reads_c(p)) {
    p.ldc = packed(extents_d(p));
    p.align_c = Problem{}.align_c;
  }
  return p;
}

Problem shape_of(const Problem& normalised) {
  Problem p = normalised;
  if (p.alpha != 0) p.alpha = 1;
  if (p.beta != 0) p.beta = 1;
  if (p.slope != 0) p.slope = Problem{}.slope;
  return p;
}

Problem with_operands(const Problem& normalised, const Operands& operands) {
  Problem p = normalised;
  if (p.m == 0 || p.n == 0) return p;
  const auto set_alignment = [](int& align, const Operand& operand, std::int64_t ld, DataType type) {
    align = alignment_of(operand.range().begin | std::uint64_t(ld) * size_of(type));
  };

  const Operand d{"D", operands.d, span_bytes(extents_d(p), p.ldd, p.d)};
  check_pointer(d, size_of(p.d), p);
  set_alignment(p.align_d, d, p.ldd, p.d);
  p.align_d = std::min(p.align_d, row_end_alignment(p));

  const Operand workspace{"workspace", operands.workspace, std::int64_t(operands.workspace_bytes)};
  if (workspace.pointer != nullptr) {
    check_pointer(workspace, 256, p);
    check_apart(workspace, d, p);
  }
  const auto check_input = [&](const Operand& input, DataType type) {
    check_pointer(input, size_of(type), p);
    check_apart(d, input, p);
    if (workspace.pointer != nullptr) check_apart(workspace, input, p);
  };

  if (reads_ab(p)) {
    const Operand a{"A", operands.a, span_bytes(extents_a(p), p.lda, p.a)};
    const Operand b{"B", operands.b, span_bytes(extents_b(p), p.ldb, p.b)};
    check_input(a, p.a);
    check_input(b, p.b);
    set_alignment(p.align_a, a, p.lda, p.a);
    set_alignment(p.align_b, b, p.ldb, p.b);
  }
  if (reads_c(p)) {
    const Operand c{"C", operands.c, span_bytes(extents_d(p), p.ldc, p.d)};
    if (c.pointer != d.pointer || p.ldc != p.ldd) check_input(c, p.d);
    set_alignment(p.align_c, c, p.ldc, p.d);
  }
  if (p.bias) check_input({"bias", operands.bias, p.n * std::int64_t(size_of(p.d))}, p.d);
  return p;
}

bool equal(const Problem& x, const Problem& y) {
  const auto integers = [](const Problem& p) {
    return std::tuple(p.m, p.n, p.k, p.a, p.b, p.d, p.layout_a, p.layout_b, p.lda, p.ldb, p.ldc, p.ldd, p.bias,
                      p.activation, p.align_a, p.align_b, p.align_c, p.align_d);
  };
  return integers(x) == integers(y) && same(x.alpha, y.alpha) && same(x.beta, y.beta) && same(x.slope, y.slope);
}

std::size_t hash_value(const Problem& p) {
  std::uint64_t hash = 0;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  };
  const auto mix_scalar = [&mix](double x) { mix(x == 0 ? 0 : x != x ? 1 : std::bit_cast<std::uint64_t>(x)); };
  for (std::int64_t value : {p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.ldd}) mix(std::uint64_t(value));
  std::uint64_t small = 0;  // everything with few values, packed
  for (int value : {int(p.a), int(p.b), int(p.d), int(p.layout_a), int(p.layout_b), int(p.bias), int(p.activation),
                    p.align_a, p.align_b, p.align_c, p.align_d}) {
    small = small * 32 + std::uint64_t(value);
  }
  mix(small);
  mix_scalar(p.alpha);
  mix_scalar(p.beta);
  mix_scalar(p.slope);
  return hash;
}

double minimum_bytes(const Problem& p) {
  const double m = double(p.m), n = double(p.n), k = double(p.k);
  double bytes = m * n * double(size_of(p.d));
  if (reads_ab(p)) bytes += m * k * double(size_of(p.a)) + k * n * double(size_of(p.b));
  if (reads_c(p)) bytes += m * n * double(size_of(p.d));
  if (p.bias && p.m != 0) bytes += n * double(size_of(p.d));
  return bytes;
}

double floor_us(const Problem& problem) {
  const double compute_us = (reads_ab(problem) ? flops(problem) : 0.0) / 800e6;
  return std::max(compute_us, minimum_bytes(problem) / 4.2e6) + 2;
}

std::string to_string(const Problem& p) {
  const Problem defaults;
  std::ostringstream text;
  text << "m=" << p.m << " n=" << p.n << " k=" << p.k << " a=" << to_string(p.a) << " b=" << to_string(p.b)
       << " d=" << to_string(p.d);
  if (p.layout_a != defaults.layout_a) text << " layout_a=" << to_string(p.layout_a);
  if (p.layout_b != defaults.layout_b) text << " layout_b=" << to_string(p.layout_b);
  const auto leading_dimension = [&text](const char* name, std::int64_t ld, const Extents& x) {
    if (ld != 0 && ld != packed(x)) text << " " << name << "=" << ld;
  };
  leading_dimension("lda", p.lda, extents_a(p));
  leading_dimension("ldb", p.ldb, extents_b(p));
  leading_dimension("ldc", p.ldc, extents_d(p));
  leading_dimension("ldd", p.ldd, extents_d(p));
  text.precision(9);  // what tells any two f32 apart
  if (!same(p.alpha, defaults.alpha)) text << " alpha=" << p.alpha;
  if (!same(p.beta, defaults.beta)) text << " beta=" << p.beta;
  if (p.bias) text << " bias=1";
  if (p.activation != defaults.activation) text << " activation=" << to_string(p.activation);
  if (p.activation == Activation::leaky_relu && float(p.slope) != float(defaults.slope)) text << " slope=" << p.slope;
  const auto alignment = [&text](const char* name, int value) {
    if (value != 16) text << " " << name << "=" << value;
  };
  alignment("align_a", p.align_a);
  alignment("align_b", p.align_b);
  alignment("align_c", p.align_c);
  alignment("align_d", p.align_d);
  return text.str();
}

}  // namespace jitgemm
