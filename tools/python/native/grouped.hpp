#pragma once

#include "matmul.hpp"

namespace jitgemm::python {

/// The arguments of jitgemm.grouped_mm(), as Python gives them.
struct GroupedArguments {
  nb::handle a, b, offs, bias, out_dtype, counts, out, scale_a, scale_b;
  double beta = 0;
  std::int64_t expected_m = 0;
  nb::handle config, stream, context, epilogue, operands;
};

/// Queues the products of all groups. Returns `out`, or the array that was made for it; and an epilogue's outputs, see
/// EpilogueCall.
nb::object grouped_mm(const GroupedArguments& arguments);

}  // namespace jitgemm::python
