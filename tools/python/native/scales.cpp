#include "scales.hpp"

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "core/operand_matrix.hpp"
#include "core/type_rules.hpp"
#include "util/integers.hpp"

namespace jitgemm::python {
namespace {
namespace nb = nanobind;

constexpr std::int64_t block = 128;

/// An operand's scales with k along the second dimension, as A's are.
struct Side {
  const char* name;    // of the argument
  const View* scales;  // as given; null of those that are not there
  bool is_b;
  bool is_matrix;
  std::int64_t rows = 0, k = 0;
  std::int64_t row_stride = 0, k_stride = 0;

  Side(const char* argument, const View* given, const View& operand, bool of_b)
      : name(argument), scales(given), is_b(of_b), is_matrix(operand.rank == 2) {
    const std::size_t along = is_b ? 1 : 0;
    if (is_matrix) {
      rows = operand.shape[along];
      k = operand.shape[1 - along];
    }
    if (scales && scales->rank == 2) {
      row_stride = scales->strides[along];
      k_stride = scales->strides[1 - along];
    }
  }

  std::int64_t k_blocks() const { return ceil_div(k, block); }
  std::int64_t rows_of(Scaling scaling) const { return scaling == Scaling::block_1x128 ? rows : ceil_div(rows, block); }

  bool is_one() const { return !scales || scales->elements() == 1; }
  bool is_vector() const {
    if (!scales || !is_matrix || scales->elements() != rows || scales->rank < 1 || scales->rank > 2) return false;
    return scales->shape[scales->rank == 2 && is_b ? 1 : 0] == rows;
  }
  bool is_of(Scaling scaling) const {
    if (!scales || !is_matrix || scales->rank != 2) return false;
    const std::size_t along = is_b ? 1 : 0;
    return scales->shape[along] == rows_of(scaling) && scales->shape[1 - along] == k_blocks();
  }
  /// Whether kernels read scales of blocks where they are.
  bool lies_as(Scaling scaling) const {
    if (!is_of(scaling)) return false;
    const std::int64_t ld = scale_ld(scaling, rows, k), extent_of_rows = rows_of(scaling);
    const bool by_k = scaling == Scaling::block_128x128;
    if (scales->elements() == 0) return true;
    return (extent_of_rows == 1 || row_stride == (by_k ? ld : 1)) && (k_blocks() == 1 || k_stride == (by_k ? 1 : ld));
  }

  std::string shape(Scaling scaling) const {
    Shape expected;
    expected.push_back(is_b ? k_blocks() : rows_of(scaling));
    expected.push_back(is_b ? rows_of(scaling) : k_blocks());
    return to_string(expected);
  }
  std::string blocks() const { return shape(Scaling::block_1x128) + " or " + shape(Scaling::block_128x128); }
};

/// One for all, or one for each row of a, column of b.
std::optional<Scaling> of_all_k(const Side& side) {
  if (side.is_one()) return Scaling::value;
  if (side.is_vector()) return Scaling::vector;
  return std::nullopt;
}

/// A single row's blocks are 1x128 and 128x128 at once: whichever lies so.
std::optional<Scaling> of_blocks(const Side& side) {
  for (const Scaling scaling : {Scaling::block_1x128, Scaling::block_128x128})
    if (side.lies_as(scaling)) return scaling;
  for (const Scaling scaling : {Scaling::block_1x128, Scaling::block_128x128})
    if (side.is_of(scaling)) return scaling;
  return std::nullopt;
}

void require_known(const Side& side) {
  if (of_all_k(side) || of_blocks(side)) return;
  std::string text = std::string(side.name) + " must be one float32 or, where a and b are matrices, one for each " +
                     (side.is_b ? "column of b: (N,) or (1, N)" : "row of a: (M,) or (M, 1)") + "; of 8-bit floats " +
                     (side.is_b ? "also one for 128 of k and a column, (K / 128, N), or 128 of them, (K / 128, N / 128)"
                                : "also one for a row, or 128 of them, and 128 of k: (M, K / 128), (M / 128, K / 128)");
  if (side.is_matrix) text += ", here " + side.blocks();
  text += "; it is " + to_string(shape_of(*side.scales));
  if (side.is_b && side.is_matrix && side.scales->rank == 2)
    text += ". The scales of a weight's transpose are the transpose of its scales";
  throw nb::type_error(text.c_str());
}

void require_contiguous(const Side& side, Scaling scaling) {
  if (scaling != Scaling::vector) return;
  const View& view = *side.scales;
  if (view.strides[view.rank == 2 && side.is_b ? 1 : 0] != 1)
    throw nb::value_error((std::string(side.name) + " is not contiguous; pass one that is").c_str());
}

void require_readable(const Side& side, Scaling scaling) {
  if (side.lies_as(scaling)) return;
  const std::string ld = std::to_string(scale_ld(scaling, side.rows, side.k));
  const bool first_is_1 = side.is_b == (scaling == Scaling::block_128x128);
  throw nb::value_error((std::string(side.name) + " is " + form_text(*side.scales) + ", where kernels read strides (" +
                         (first_is_1 ? "1, " + ld : ld + ", 1") + "); pass " +
                         (side.is_b ? "jitgemm.block_scales(scale_b.T, b.T).T" : "jitgemm.block_scales(scale_a, a)"))
                            .c_str());
}

}  // namespace

Scalings scalings_of(const View* scale_a, const View* scale_b, const View& a, const View& b) {
  const Side sides[] = {{"scale_a", scale_a, a, false}, {"scale_b", scale_b, b, true}};
  for (const Side& side : sides) {
    if (a.type == DataType::s8 && !of_all_k(side))
      throw nb::type_error((std::string(side.name) + " is " + to_string(shape_of(*side.scales)) +
                            ", and scales of int8 are one float32 or, where a and b are matrices, one for each " +
                            (side.is_b ? "column of b: (N,) or (1, N)" : "row of a: (M,) or (M, 1)") +
                            "; pass one of them")
                               .c_str());
    require_known(side);
  }
  const auto [left, right] = std::pair(of_all_k(sides[0]), of_all_k(sides[1]));
  if (left && right) {
    require_contiguous(sides[0], *left);
    require_contiguous(sides[1], *right);
    return {*left, *right};
  }
  // Up to 128 of k, or rows, one value a row and one alone are blocks as well, beside blocks.
  const auto [of_a, of_b] = std::pair(of_blocks(sides[0]), of_blocks(sides[1]));
  if (!of_a || !of_b) {
    const Side &with = sides[of_a ? 0 : 1], &without = sides[of_a ? 1 : 0];
    throw nb::value_error((std::string(with.name) + " is " + to_string(shape_of(*with.scales)) +
                           ", one for each 128 of k, and " + without.name +
                           (without.scales ? " " + to_string(shape_of(*without.scales)) : std::string(" no array")) +
                           "; both operands have such scales or none: pass " + without.name + " as " + without.blocks())
                              .c_str());
  }
  require_readable(sides[0], *of_a);
  require_readable(sides[1], *of_b);
  return {*of_a, *of_b};
}

}  // namespace jitgemm::python
