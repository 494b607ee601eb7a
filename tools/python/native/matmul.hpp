#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "array.hpp"
#include "contexts.hpp"
#include "epilogue.hpp"
#include "product.hpp"
#include "shards.hpp"

namespace jitgemm::python {

/// The arguments of jitgemm.matmul(), as Python gives them.
struct MatmulArguments {
  nb::handle a, b, c = Py_None;
  double alpha = 1;
  nb::handle beta = Py_None;
  nb::handle bias = Py_None, activation = Py_None;
  double slope = 0.01;
  nb::handle out = Py_None, out_dtype = Py_None, precision = Py_None, accumulation = Py_None;
  nb::handle scale_a = Py_None, scale_b = Py_None, scale_d = Py_None;
  nb::handle config = Py_None, stream = Py_None, context = Py_None;
  nb::handle epilogue = Py_None, operands = Py_None;
  bool b_is_weight = false;  // B is the transpose of the array, as torch.nn.Linear has it
};

/// What becomes of them: GEMMs of one problem on a stream. Arrays are borrowed.
class PreparedMatmul {
 public:
  enum class Purpose : std::uint8_t { run, describe };  // describe: without an `out` none is made

  /// `shards`: of a product across ranks, whose arrays are those of one rank.
  PreparedMatmul(const MatmulArguments& arguments, Purpose purpose, const Shards* shards = nullptr);

  const Product& product() const { return product_; }
  const Operands& operands() const { return operands_; }
  Stream stream() const { return stream_; }
  bool waits() const { return waits_; }  ///< whether to wait for the stream before Python goes on
  const std::optional<KernelConfig>& config() const { return config_; }
  ContextHandle& context() const { return *context_; }
  const Place& place() const { return place_; }

  /// Queues the GEMMs. Returns `out`, or the array that was made for it; and an epilogue's outputs, see EpilogueCall.
  nb::object run() const;
  /// What run() returns, where something else has queued the product.
  nb::object result() const;

 private:
  friend class Matmul;

  /// Of the arrays as the product has them: a linear layer's weight is transposed, and f32 may be tf32.
  struct Views {
    View a, b, c = {}, bias = {}, d = {};
  };
  // The constructor's steps, in this order. What the problem says besides sizes and layouts goes to `like`.
  void load(const MatmulArguments& arguments, Problem& like);
  void set_types(const MatmulArguments& arguments, Views& views, Problem& like) const;
  void set_options(const MatmulArguments& arguments, Problem& like);
  View result_view(const MatmulArguments& arguments, Purpose purpose, const Shape& shape, DataType type);
  /// As torch does, of what is contiguous in neither of its last two dimensions. Whether there was any.
  bool copy_what_lies_apart(const MatmulArguments& arguments, Views& views);
  void set_operands(const Views& views);
  void set_alignments();

  std::optional<std::intptr_t> asked_stream_;
  Product product_;
  Operands operands_ = {};
  std::optional<KernelConfig> config_;
  ContextHandle* context_ = nullptr;
  Place place_;
  Stream stream_ = nullptr;
  bool waits_ = false;
  nb::object out_;
  bool made_out_ = false;
  std::unique_ptr<EpilogueCall> epilogue_;
  std::vector<EpilogueValue> epilogue_values_;
  // Keep copies and capsules while the GEMMs are queued.
  std::optional<Array> a_, b_, c_, bias_, d_, scale_a_, scale_b_, scale_d_;
  nb::object copy_a_, copy_b_, copy_c_, copy_bias_;
};

/// Queues the GEMMs of a product, without Python's lock. `wait`: until they are done.
void run_product(Context& context, const Product& product, const Operands& operands, Stream stream,
                 const std::optional<KernelConfig>& config, bool wait);
/// Whether to wait, since a framework would reuse an array's memory before they are done.
bool must_wait(const std::optional<Array>& array);

/// Without asking torch, which matmul() does, see torch_way.hpp.
nb::object compute(const MatmulArguments& arguments);

}  // namespace jitgemm::python
