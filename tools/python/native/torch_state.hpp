#pragma once

#include <nanobind/nanobind.h>

namespace jitgemm::python {
namespace nb = nanobind;

/// What torch does with operators that the calling thread calls, as far as it matters to a product.
struct TorchState {
  /// Something looks at operators: a dispatch mode (fake tensors, counters), a transform of torch.func, tracing,
  /// forward-mode differentiation.
  bool watched = true;
  bool autocast = true;   ///< of some device
  bool known = false;     ///< else this torch does not tell, and of the two the worst is assumed
  bool gradients = true;  ///< grad mode is on, and autograd, where that is known, not passed already
};

/// Of the calling thread; a few nanoseconds. For programs that have imported torch.
TorchState torch_state();

/// Whether f32 products are to be rounded to tf32, as torch's own are on a GPU.
bool torch_prefers_tf32();

/// Tells autograd that a tensor was written to, so that a backward pass that needs its old contents says so.
void note_written(nb::handle tensor);

}  // namespace jitgemm::python
