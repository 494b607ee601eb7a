#include "matmul.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>

#include "backend/backend.hpp"
#include "context_internals.hpp"
#include "core/pairing.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"
#include "new_arrays.hpp"
#include "scales.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "torch_state.hpp"
#include "util/function_ref.hpp"
#include "without_lock.hpp"

namespace jitgemm::python {
namespace {

View transposed(View view) {
  if (view.rank >= 2) {
    std::swap(view.shape[std::size_t(view.rank - 1)], view.shape[std::size_t(view.rank - 2)]);
    std::swap(view.strides[std::size_t(view.rank - 1)], view.strides[std::size_t(view.rank - 2)]);
  }
  return view;
}

int alignment_of(const void* pointer, DataType type) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 16;
  return std::max(int(address & (~address + 1)), int(size_of(type)));
}

void require_type(const View& view, DataType expected, const char* name, DataType d) {
  if (view.type == expected) return;
  throw nb::type_error((std::string(name) + " is of " + std::string(to_string(view.type)) +
                        ", and goes with a result of " + std::string(to_string(d)) + " as " +
                        std::string(to_string(expected)) + "; convert it")
                           .c_str());
}

void require_weight(const View& x, const View& weight) {
  if (x.rank == 0 || weight.rank == 0 || x.shape[std::size_t(x.rank - 1)] == weight.shape[std::size_t(weight.rank - 1)])
    return;
  throw ShapeError(shape_text("x", x) + " and " + shape_text("weight", weight) +
                   ": their last dimensions must be alike; x is (..., in) and weight (out, in)");
}

/// `run` with the operands of each GEMM of a product.
void for_each_gemm(const Product& product, const Operands& operands, FunctionRef<void(const Operands&)> run) {
  if (product.loops == 0) return run(operands);
  std::array<std::int64_t, max_rank> index = {};
  std::vector<EpilogueValue> values(operands.epilogue_count);
  const auto moved = [](const void* pointer, std::int64_t bytes) {
    return pointer ? static_cast<const std::byte*>(pointer) + bytes : nullptr;
  };
  for (bool more = true; more;) {
    Operands at = operands;
    std::copy_n(operands.epilogue, values.size(), values.begin());
    at.epilogue = values.data();
    for (int i = 0; i < product.loops; ++i) {
      const Product::Loop& loop = product.loop[std::size_t(i)];
      const std::int64_t step = index[std::size_t(i)];
      at.a = moved(at.a, step * loop.a);
      at.b = moved(at.b, step * loop.b);
      at.c = moved(at.c, step * loop.c);
      at.d = const_cast<std::byte*>(moved(at.d, step * loop.d));
      for (std::size_t j = 0; j < values.size(); ++j) {
        values[j].in = moved(values[j].in, step * loop.epilogue[j]);
        values[j].out = const_cast<std::byte*>(moved(values[j].out, step * loop.epilogue[j]));
      }
    }
    run(at);
    more = false;
    for (int i = product.loops - 1; i >= 0 && !more; --i) {
      std::int64_t& step = index[std::size_t(i)];
      more = ++step < product.loop[std::size_t(i)].extent;
      if (!more) step = 0;
    }
  }
}

}  // namespace

PreparedMatmul::PreparedMatmul(const MatmulArguments& it, Purpose purpose, const Shards* shards)
    : asked_stream_(stream_asked_for(it.stream)) {
  Problem like;
  like.alpha = it.alpha;
  load(it, like);
  Views views{a_->view(), it.b_is_weight ? transposed(b_->view()) : b_->view()};
  set_types(it, views, like);
  set_options(it, like);
  if (it.b_is_weight) require_weight(a_->view(), b_->view());
  const Shape shape = shards ? rank_shape(views.a, views.b, *shards) : product_shape(views.a, views.b, has_pairs(like));
  const auto view_of = [](const std::optional<Array>& array) { return array ? &array->view() : nullptr; };
  const Scalings scalings = scalings_of(view_of(scale_a_), view_of(scale_b_), views.a, views.b);
  like.a.scaling = scalings.a;
  like.b.scaling = scalings.b;
  views.d = result_view(it, purpose, shape, like.d.type);
  EpilogueArrays of_epilogue;
  if (epilogue_) {
    epilogue_->complete(purpose == Purpose::run ? &*a_ : nullptr, shape, asked_stream_);
    of_epilogue = epilogue_->arrays();
  }
  if (c_ && like.beta == 0) c_.reset();
  if (c_) views.c = c_->view();
  if (bias_) views.bias = bias_->view();

  const ProductArrays arrays{&views.a, &views.b, c_ ? &views.c : nullptr, bias_ ? &views.bias : nullptr,
                             epilogue_ ? &of_epilogue : nullptr};
  const auto described = [&] {
    return shards ? describe_shards(arrays, views.d, like, *shards) : describe(arrays, views.d, like);
  };
  product_ = described();
  if (copy_what_lies_apart(it, views)) {
    product_ = described();
    if (product_.copy_c)  // contiguous, where D is column-major
      throw nb::value_error("c is row-major and out column-major; pass both alike");
  }
  set_operands(views);
  if (purpose == Purpose::describe && !shards) set_alignments();  // ranks say the same wherever their arrays begin

  context_ = &context_for(it.context, place_);
  stream_ = stream_for(**context_, *a_, asked_stream_, made_out_ || (epilogue_ && epilogue_->has_made()));
  for (const auto* array : {&a_, &b_, &c_, &bias_, &d_, &scale_a_, &scale_b_, &scale_d_})
    waits_ = waits_ || must_wait(*array);
  waits_ = waits_ || (epilogue_ && epilogue_->must_wait());
}

void PreparedMatmul::load(const MatmulArguments& it, Problem& like) {
  a_.emplace(it.a, "a", false, asked_stream_);
  b_.emplace(it.b, "b", false, asked_stream_);
  place_ = a_->place();
  const auto load_array = [&](std::optional<Array>& array, nb::handle argument, const char* name,
                              bool written = false) {
    if (!argument.is_none()) array.emplace(argument, name, written, asked_stream_);
  };
  const auto load_scale = [&](std::optional<Array>& array, nb::handle argument, const char* name) -> const float* {
    if (is_number(argument)) {
      like.alpha *= number_of(argument, name);
      return nullptr;
    }
    load_array(array, argument, name);
    if (!array) return nullptr;
    const bool one = &array == &scale_d_;
    if (array->view().type != DataType::f32 || (one && array->view().elements() != 1))
      throw nb::type_error((std::string(name) + (one ? " must be one float32" : " must be float32")).c_str());
    return static_cast<const float*>(array->view().data);
  };
  load_array(c_, it.c, "c");
  load_array(bias_, it.bias, "bias");
  load_array(d_, it.out, "out", true);
  if (is_number(it.scale_d)) throw nb::type_error("scale_d is a number; pass an array of one float32");
  operands_.scale_a = load_scale(scale_a_, it.scale_a, "scale_a");
  operands_.scale_b = load_scale(scale_b_, it.scale_b, "scale_b");
  operands_.scale_d = load_scale(scale_d_, it.scale_d, "scale_d");
  if (!it.epilogue.is_none())
    epilogue_ = std::make_unique<EpilogueCall>(it.epilogue, it.operands, place_, asked_stream_);
  else if (!it.operands.is_none())
    throw nb::value_error("operands are an epilogue's, which is not there; pass epilogue");
  for (const auto& [array, name] : {std::pair{&b_, "b"},
                                    {&c_, "c"},
                                    {&bias_, "bias"},
                                    {&d_, "out"},
                                    {&scale_a_, "scale_a"},
                                    {&scale_b_, "scale_b"},
                                    {&scale_d_, "scale_d"}})
    if (*array) require_place((*array)->place(), name, place_);
}

void PreparedMatmul::set_types(const MatmulArguments& it, Views& views, Problem& like) const {
  View &a = views.a, &b = views.b;
  const bool tf32 = a.type == DataType::f32 && is_tf32(it.precision, a_->type());
  if (tf32) a.type = DataType::tf32;
  if (tf32 && b.type == DataType::f32) b.type = DataType::tf32;
  if (!it.precision.is_none() && a.type != DataType::f32 && a.type != DataType::tf32)
    throw nb::value_error("precision is for float32 operands; leave it out for others");
  like.a.type = a.type;
  like.b.type = b.type;
  like.d.type = !it.out_dtype.is_none() ? data_type_of(it.out_dtype, "out_dtype")
                : d_                    ? d_->view().type
                                        : default_output(a.type);
  like.c.type = type_of_c(like);
  if (d_ && d_->view().type != like.d.type)
    throw nb::type_error(("out is of " + std::string(to_string(d_->view().type)) + ", and out_dtype " +
                          std::string(to_string(like.d.type)) + "; leave out_dtype away")
                             .c_str());
  if (why_types_unsupported(like).empty()) {  // else the library says it
    if (c_) require_type(c_->view(), like.c.type, "c", like.d.type);
    if (bias_) require_type(bias_->view(), like.c.type, "bias", like.d.type);
  }
}

void PreparedMatmul::set_options(const MatmulArguments& it, Problem& like) {
  like.beta = it.beta.is_none() ? (c_ ? 1 : 0) : number_of(it.beta, "beta");
  if (!c_ && like.beta != 0) throw nb::value_error("beta multiplies c, which is not there; pass c, or leave beta away");
  like.epilogue.activation = activation_of(it.activation);
  like.epilogue.slope = it.slope;
  if (epilogue_) like.epilogue.function = epilogue_->epilogue().digest();
  like.accumulation = accumulation_of(it.accumulation);
  config_ = config_of(it.config);
}

View PreparedMatmul::result_view(const MatmulArguments& it, Purpose purpose, const Shape& shape, DataType type) {
  if (d_) {
    const View& d = d_->view();
    if (d.rank != shape.rank || !std::equal(d.shape.begin(), d.shape.begin() + d.rank, shape.extents.begin()))
      throw nb::value_error(("out is " + to_string(shape_of(d)) + ", and the result " + to_string(shape) +
                             "; pass an array of that shape")
                                .c_str());
    out_ = nb::borrow(it.out);
    return d;
  }
  if (purpose == Purpose::describe) return contiguous_view(shape, type);
  out_ = empty_array(*a_, shape, type);
  made_out_ = true;
  d_.emplace(out_, "out", true, asked_stream_);
  return d_->view();
}

bool PreparedMatmul::copy_what_lies_apart(const MatmulArguments& it, Views& views) {
  const auto copy = [&](bool needed, std::optional<Array>& array, nb::object& kept, const char* name, View& view,
                        bool turned = false) {
    if (!needed) return;
    if (asked_stream_ && place_.cuda)
      throw nb::value_error((std::string(name) + " is contiguous in neither of its last two dimensions, and a copy "
                                                 "would be made on another stream; pass a contiguous one")
                                .c_str());
    const DataType type = view.type;
    kept = contiguous_copy(*array, name);
    array.emplace(kept, name, false, asked_stream_);
    view = turned ? transposed(array->view()) : array->view();
    view.type = type;
  };
  copy(product_.copy_a, a_, copy_a_, "a", views.a);
  copy(product_.copy_b, b_, copy_b_, "b", views.b, it.b_is_weight);
  copy(product_.copy_c, c_, copy_c_, "c", views.c);
  copy(product_.copy_bias, bias_, copy_bias_, "bias", views.bias);
  return product_.copy_a || product_.copy_b || product_.copy_c || product_.copy_bias;
}

void PreparedMatmul::set_operands(const Views& views) {
  operands_.a = views.a.data;
  operands_.b = views.b.data;
  if (product_.swapped) {
    std::swap(operands_.a, operands_.b);
    std::swap(operands_.scale_a, operands_.scale_b);
  }
  if (c_) operands_.c = views.c.data;
  if (bias_) operands_.bias = views.bias.data;
  operands_.d = views.d.data;
  if (epilogue_) {
    epilogue_values_ = epilogue_->values(product_);
    operands_.epilogue = epilogue_values_.data();
    operands_.epilogue_count = epilogue_values_.size();
  }
}

void PreparedMatmul::set_alignments() {
  Problem& problem = product_.problem;
  problem.a.alignment = alignment_of(operands_.a, problem.a.type);
  problem.b.alignment = alignment_of(operands_.b, problem.b.type);
  if (c_) problem.c.alignment = alignment_of(operands_.c, problem.c.type);
  if (operands_.d) problem.d.alignment = alignment_of(operands_.d, problem.d.type);
}

bool must_wait(const std::optional<Array>& array) {
  return array && array->place().cuda && !array->type().follows_stream();
}

void run_product(Context& context, const Product& product, const Operands& operands, Stream stream,
                 const std::optional<KernelConfig>& config, bool wait) {
  const WithoutLock unlock;
  for_each_gemm(product, operands, [&](const Operands& at) {
    if (config)
      context.gemm(product.problem, at, stream, *config);
    else
      context.gemm(product.problem, at, stream);
  });
  if (!wait) return;
  Backend& backend = ContextInternals::backend(context);
  if (backend.capture_status(stream) != CaptureStatus::capturing) backend.synchronize(stream);
}

nb::object PreparedMatmul::run() const {
  run_product(**context_, product_, operands_, stream_, config_, waits_);
  return result();
}

nb::object PreparedMatmul::result() const {
  nb::object d = out_;
  if (made_out_)
    d = finished_array(*a_, d);
  else if (d_->type().is_torch())
    note_written(d);
  return epilogue_ ? epilogue_->result(d, *a_) : d;
}

nb::object compute(const MatmulArguments& arguments) {
  return PreparedMatmul(arguments, PreparedMatmul::Purpose::run).run();
}

}  // namespace jitgemm::python
