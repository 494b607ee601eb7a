#include "measure/epilogue_check.hpp"

#include <algorithm>
#include <cmath>

#include "backend/backend.hpp"
#include "core/element.hpp"
#include "core/epilogue_function.hpp"
#include "core/pairing.hpp"
#include "core/type_rules.hpp"
#include "measure/epilogue_evaluator.hpp"
#include "measure/reference.hpp"
#include "tune/tolerance.hpp"

namespace jitgemm::cli {
namespace {

/// An array of one call: D, or an operand of the function.
struct Place {
  std::string name;
  const void* memory;
  OperandMatrix matrix;
  OperandShape shape = OperandShape::matrix;

  std::int64_t index(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    const std::int64_t in_matrix = shape == OperandShape::along_m   ? row
                                   : shape == OperandShape::along_n ? column
                                                                    : row * matrix.ld + column;
    return batch * matrix.stride + in_matrix;
  }
  /// At each of the columns.
  std::vector<double> row_at(Backend& backend, std::int64_t batch, std::int64_t row,
                             const std::vector<std::int64_t>& columns) const {
    const auto size = std::int64_t(size_of(matrix.type));
    const std::int64_t first = index(batch, row, columns.front()), last = index(batch, row, columns.back());
    std::vector<std::byte> bytes(std::size_t((last - first + 1) * size));
    backend.copy_to_host(bytes.data(), static_cast<const std::byte*>(memory) + first * size, bytes.size());
    std::vector<double> values;
    for (const std::int64_t column : columns)
      values.push_back(load_element(bytes.data(), index(batch, row, column) - first, matrix.type));
    return values;
  }
};

/// The sum that the function is given, with what rounding may make of it.
NormalProblem sums_of(const NormalProblem& p) {
  NormalProblem sums = without_epilogue_function(p);
  sums.d.type = compute_type_of(p);
  return sums;
}

/// Of what one machine's functions give and another's: a few units in the last place, see EpilogueFunction.
double function_error(DataType compute) { return compute == s32 ? 0 : compute == f64 ? 0x1p-50 : 0x1p-21; }

}  // namespace

void check_epilogue(Backend& backend, const Problem& p, const Operands& operands, const std::vector<RowOfD>& rows,
                    const std::vector<std::int64_t>& columns, Check& check) {
  const NormalProblem normal = normalise(p);
  const EpilogueFunction& function = epilogue_function(p);
  const bool pairs = has_pairs(p);
  std::vector<Place> inputs, outputs{{"D", operands.d, matrix_d(p)}};
  std::vector<double> scalars;
  for (std::size_t i = 0; i < function.operands.size(); ++i) {
    const EpilogueOperand& operand = function.operands[i];
    const EpilogueValue& value = operands.epilogue[i];
    const Place place{operand.name, operand.output ? value.out : value.in, matrix_of(operand, value, p), operand.shape};
    (operand.output ? outputs : inputs).push_back(place);
    if (!operand.output) scalars.push_back(value.scalar);
  }
  EpilogueEvaluator evaluate(function, compute_type_of(p));
  const NormalProblem sums = sums_of(normal);
  Operands of_sums = operands;
  of_sums.scale_d = nullptr;
  Reference reference(backend, sums, of_sums);
  float scale_d = 1;
  if (operands.scale_d) backend.copy_to_host(&scale_d, operands.scale_d, sizeof scale_d);

  for (const auto& [batch, row] : rows) {
    std::vector<std::int64_t> of_product;  // the columns that meet in each of D
    for (const std::int64_t column : columns) {
      const bool halves = pairing_of(p) == Pairing::halves;
      of_product.push_back(pairs && !halves ? 2 * column : column);
      if (pairs) of_product.push_back(halves ? p.n / 2 + column : 2 * column + 1);
    }
    reference.fetch(batch, {row}, of_product);
    std::vector<std::vector<double>> read;
    for (std::size_t j = 0; j < inputs.size(); ++j)
      read.push_back(inputs[j].shape == OperandShape::scalar ? std::vector<double>(columns.size(), scalars[j])
                                                             : inputs[j].row_at(backend, batch, row, columns));
    // Each sum as it is, and as far to both sides as rounding may take it; and what the text makes of other machines'
    // functions, which a difference from 1 may have nothing left of but their errors.
    std::vector<EpilogueEvaluator::Point> points;
    const int sides = pairs ? 9 : 3, all = sides + 4;
    const double e = function_error(compute_type_of(p));
    for (std::size_t j = 0; j < columns.size(); ++j) {
      const ExpectedElement x = reference.at(batch, row, of_product[pairs ? 2 * j : j]);
      const ExpectedElement up = pairs ? reference.at(batch, row, of_product[2 * j + 1]) : ExpectedElement{};
      for (int side = 0; side < all; ++side) {
        EpilogueEvaluator::Point point{
            .x = x.value, .up = up.value, .inputs = {}, .row = row, .column = columns[j], .batch = batch};
        if (side < sides) {
          point.x += (side % 3 - 1) * x.tolerance;
          point.up += (side / 3 - 1) * up.tolerance;
        } else {
          point.function_error[0] = (side - sides) % 2 ? e : -e;
          point.function_error[1] = (side - sides) / 2 ? e : -e;
        }
        for (const std::vector<double>& values : read) point.inputs.push_back(values[j]);
        points.push_back(std::move(point));
      }
    }
    const std::vector<std::vector<double>> values = evaluate(points);
    for (std::size_t output = 0; output < outputs.size(); ++output) {
      const std::vector<double> got = outputs[output].row_at(backend, batch, row, columns);
      NormalProblem rounded = sums;
      rounded.d.type = outputs[output].matrix.type;
      for (std::size_t j = 0; j < columns.size(); ++j) {
        const auto at = [&](int side) { return values[j * std::size_t(all) + std::size_t(side)][output]; };
        const double value = at(pairs ? 4 : 1);
        double error = 0;
        for (int side = 0; side < all; ++side) error = std::max(error, std::abs(at(side) - value));
        if (std::isfinite(value)) error += 2 * e * std::abs(value);
        const double scale = output == 0 ? double(scale_d) : 1;
        const ElementTerms terms{.linear = value, .scale = scale, .error = error};
        check.compare({outputs[output].name, batch, row, columns[j]}, got[j],
                      expected_element(rounded, terms, scale * value));
      }
    }
  }
}

}  // namespace jitgemm::cli
