#pragma once

#include "matmul.hpp"

namespace jitgemm::python {

/// How torch is told of a product.
enum class Way : std::uint8_t {
  direct,     ///< compute()
  recorded,   ///< for gradients and autocast, where nothing else looks at operators
  operators,  ///< torch's: for tracing, subclasses and whatever else looks at them
  unknown,    ///< operators too, of a torch that does not tell whether anything looks at them
};
/// Which way a product of these arrays must go.
Way way_of(const MatmulArguments& arguments);
/// The arguments of a product that torch does not see: a and b as autocast has them, which `cast` keeps. Throws
/// RuntimeError where torch is known to look into it, or a gradient is required. `what` names such a product.
MatmulArguments past_torch(const MatmulArguments& arguments, const char* what, nb::object& cast);

/// compute(), or by way of jitgemm.torch where way_of() says so or a tensor cannot be read. What torch would have to
/// look into is refused with an epilogue of the caller's own.
nb::object matmul(const MatmulArguments& arguments);

/// Whether torch is there, and records gradients on this thread. Throws RuntimeError where it cannot see what is
/// computed past its operators: in its transforms, modes and traces.
bool records_gradients();
/// Of this array, then.
bool requires_gradient(const Array& array);

}  // namespace jitgemm::python
