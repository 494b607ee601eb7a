#include "grouped.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>

#include "core/operand_matrix.hpp"
#include "core/pairing.hpp"
#include "core/type_rules.hpp"
#include "epilogue.hpp"
#include "imported.hpp"
#include "matrix_pointers.hpp"
#include "new_arrays.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "torch_state.hpp"
#include "torch_way.hpp"
#include "util/integers.hpp"

namespace jitgemm::python {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw nb::value_error(why.c_str()); }

/// How the last two dimensions lie in memory; those before them are steps between matrices.
void set_matrix(Matrix& matrix, const View& view, const char* name, bool may_be_columns) {
  const auto rows = std::size_t(view.rank - 2), columns = std::size_t(view.rank - 1);
  const auto lies_in = [&](std::size_t lines, std::size_t along) {
    return (view.shape[along] <= 1 || view.strides[along] == 1) &&
           (view.shape[lines] <= 1 || view.strides[lines] >= view.shape[along]);
  };
  const bool as_rows = lies_in(rows, columns), as_columns = may_be_columns && lies_in(columns, rows);
  if (!as_rows && !as_columns && view.elements() > 0)
    refuse(shape_text(name, view) + ", and its " + (may_be_columns ? "matrices do" : "rows do") +
           " not lie contiguous in memory; pass a contiguous one");
  const bool by_columns = as_columns && !as_rows;  // steps of an empty one say nothing
  matrix.layout = by_columns ? Layout::column_major : Layout::row_major;
  const std::size_t lines = by_columns ? columns : rows;
  matrix.ld = view.shape[lines] <= 1 || view.elements() == 0 ? 0 : view.strides[lines];
  if (view.rank == 3 && view.shape[0] > 1) matrix.stride = view.strides[0];
}

/// One value, or a contiguous vector of each group's. nullptr: none.
const float* scales_of(const std::optional<Array>& scales, const Shape& vectors, const char* name, Scaling& scaling) {
  if (!scales) return nullptr;
  const View& view = scales->view();
  if (view.elements() != 1) {
    const View contiguous = contiguous_view(vectors, DataType::f32);
    if (!alike(view, contiguous))
      refuse(shape_text(name, view) + ": pass one value, a contiguous " + to_string(vectors) +
             " or, for both operands of 8-bit floats, one for each 128 of k");
    scaling = Scaling::vector;
  }
  return static_cast<const float*>(view.data);
}

/// An operand's matrices with k along the last dimension of theirs, as A's are, and `groups` sets of scales, 0 if there
/// is one for all.
struct ScaledOperand {
  const char *name, *way_out;
  bool is_b;
  std::int64_t groups, rows, k;

  int rank() const { return groups > 0 ? 3 : 2; }
  Shape shape(Scaling scaling) const {
    const std::int64_t k_blocks = ceil_div(k, 128),
                       of_rows = scaling == Scaling::block_1x128 ? rows : ceil_div(rows, 128);
    Shape shape;
    if (groups > 0) shape.push_back(groups);
    shape.push_back(is_b ? k_blocks : of_rows);
    shape.push_back(is_b ? of_rows : k_blocks);
    return shape;
  }
  /// How kernels read them: elements from one to the next along each dimension of shape().
  Shape strides(Scaling scaling) const {
    const bool by_row = scaling == Scaling::block_1x128;
    const std::int64_t ld = scale_ld(scaling, rows, k), along_row = by_row ? 1 : ld, along_k = by_row ? ld : 1;
    Shape strides;
    if (groups > 0) strides.push_back(ld * (by_row ? ceil_div(k, 128) : ceil_div(rows, 128)));
    strides.push_back(is_b ? along_k : along_row);
    strides.push_back(is_b ? along_row : along_k);
    return strides;
  }
};

const float* block_scales_of(const View& view, const ScaledOperand& operand, Scaling& scaling) {
  const auto has = [&view](const Shape& shape, const auto& values) {
    return std::equal(shape.extents.begin(), shape.extents.begin() + shape.rank, values.begin());
  };
  const auto lies = [&](Scaling as) {
    const Shape strides = operand.strides(as);
    for (std::size_t i = 0; i < std::size_t(strides.rank); ++i)
      if (view.shape[i] > 1 && view.strides[i] != strides.extents[i]) return false;
    return true;
  };
  std::optional<Scaling> found;
  for (const Scaling as : {Scaling::block_1x128, Scaling::block_128x128})
    if ((operand.is_b || as == Scaling::block_1x128) && has(operand.shape(as), view.shape) &&
        (!found || (!lies(*found) && lies(as))))
      found = as;
  if (!found)
    refuse(shape_text(operand.name, view) + ": pass " + to_string(operand.shape(Scaling::block_1x128)) +
           ", one for each 128 of k" +
           (operand.is_b ? ", or " + to_string(operand.shape(Scaling::block_128x128)) : ""));
  if (!lies(*found) && view.elements() > 0)
    refuse(shape_text(operand.name, view) + ", where kernels read strides " + to_string(operand.strides(*found)) +
           "; pass " + operand.way_out);
  scaling = *found;
  return static_cast<const float*>(view.data);
}

/// How an operand of an epilogue lies. Without `several`, the rows of all groups are one matrix's.
Product::Place place_of(const EpilogueArray& array, const Shape& result, std::int64_t groups, bool several) {
  if (!array.view) return {};
  const View& view = *array.view;
  const std::string name = "operand " + array.operand->name;
  const bool matrix = array.operand->shape == OperandShape::matrix,
             by_row = array.operand->shape == OperandShape::along_m;
  const std::int64_t length = result.extents[std::size_t(result.rank - (by_row ? 2 : 1))];
  const Shape one{1, {length}}, of_each{2, {groups, length}};
  const auto is = [&view](const Shape& shape) {
    return view.rank == shape.rank &&
           std::equal(view.shape.begin(), view.shape.begin() + view.rank, shape.extents.begin());
  };
  const bool own = !by_row || several;  // whether groups may differ
  if (!(matrix ? is(result) : is(one) || (own && is(of_each))))
    refuse(shape_text(name.c_str(), view) +
           (matrix   ? ", a matrix, and the result "
            : by_row ? ", a value a row, and the result "
                     : ", a value a column, and the result ") +
           to_string(result) + ": pass one of shape " +
           (matrix ? to_string(result)
                   : to_string(one) + (own ? ", or " + to_string(of_each) + " where groups differ" : "")));
  const auto last = std::size_t(view.rank - 1);
  bool lies = view.shape[last] <= 1 || view.strides[last] == 1;
  for (std::size_t i = 0; i < last; ++i) {
    // What is read may be one for all groups, and what is written has a place for each element.
    const bool shared = view.strides[i] == 0 && !array.operand->output && !(matrix && i + 1 == last);
    const std::int64_t reach =
        i + 1 == last ? view.shape[last] : view.strides[i + 1] * (view.shape[i + 1] - 1) + view.shape[last];
    lies = lies && (view.shape[i] <= 1 || shared || view.strides[i] >= reach);
  }
  if (!lies && view.elements() > 0)
    refuse(shape_text(name.c_str(), view) +
           ", and its rows do not lie contiguous, one after another; pass a contiguous one");
  Product::Place place;
  if (matrix && view.shape[last - 1] > 1) place.ld = view.strides[last - 1];
  if (view.rank == (matrix ? 3 : 2) && view.shape[0] > 1) place.stride = view.strides[0];
  return place;
}

/// Whether autograd records it.
bool wants_gradients(const std::vector<const std::optional<Array>*>& arrays, const MatrixPointers* pointers,
                     const std::optional<EpilogueCall>& epilogue) {
  bool of_torch = false, asks_for_gradients = false;
  if (pointers && knows_torch() && pointers->requires_gradients()) of_torch = asks_for_gradients = true;
  for (const auto* array : arrays) {
    if (!*array || !(*array)->type().is_torch()) continue;
    of_torch = true;
    asks_for_gradients = asks_for_gradients || requires_gradient(**array);
  }
  if (epilogue && epilogue->requires_gradients()) of_torch = asks_for_gradients = true;
  if (!of_torch) return false;
  const TorchState state = torch_state();
  if (state.known && state.watched)
    throw std::runtime_error(
        "grouped_mm computes past torch's operators, which something here looks at (torch.func, a mode, a trace); call "
        "it outside of that");
  return state.gradients && asks_for_gradients;
}

nb::object recorded(const GroupedArguments& it) {
  static constinit Imported function("jitgemm._grouped", "recorded");
  return (*function)(it.a, it.b, it.offs, it.bias, it.out_dtype, it.out, !it.scale_a.is_none() || !it.scale_b.is_none(),
                     it.expected_m, it.config, it.stream, it.context);
}

}  // namespace

nb::object grouped_mm(const GroupedArguments& it) {
  const bool by_counts = !it.counts.is_none();
  if (by_counts == !it.offs.is_none())
    refuse(
        "rows are in groups by offs, where each one's rows of a end, or by counts, how many each has; pass one of "
        "them");
  const std::optional<std::intptr_t> used = stream_asked_for(it.stream);
  const auto loaded = [&](nb::handle argument, const char* name, bool written = false) {
    std::optional<Array> array;
    if (!argument.is_none()) array.emplace(argument, name, written, used);
    return array;
  };
  const MatrixPointers* pointers = nullptr;
  if (nb::isinstance<MatrixPointers>(it.b)) {
    pointers = nb::cast<const MatrixPointers*>(it.b);
    pointers->require_arrays();
  }
  if (nb::isinstance<nb::list>(it.b) || nb::isinstance<nb::tuple>(it.b))
    throw nb::type_error("b is several arrays; make jitgemm.MatrixPointers of them once, and pass those");
  const std::optional<Array> a = loaded(it.a, "a"), b = pointers ? std::nullopt : loaded(it.b, "b"),
                             bias = loaded(it.bias, "bias"),
                             table = by_counts ? loaded(it.counts, "counts") : loaded(it.offs, "offs"),
                             scale_a = loaded(it.scale_a, "scale_a"), scale_b = loaded(it.scale_b, "scale_b");
  std::optional<Array> d = loaded(it.out, "out", true);
  if (!a || !(b || pointers)) throw nb::type_error("a and b are arrays; pass both");
  for (const auto& [array, name] : {std::pair{&b, "b"},
                                    {&bias, "bias"},
                                    {&table, by_counts ? "counts" : "offs"},
                                    {&scale_a, "scale_a"},
                                    {&scale_b, "scale_b"},
                                    {&d, "out"}})
    if (*array) require_place((*array)->place(), name, a->place());
  if (pointers) require_place(pointers->place(), "b", a->place());
  std::optional<EpilogueCall> epilogue;
  if (!it.epilogue.is_none())
    epilogue.emplace(it.epilogue, it.operands, a->place(), used);
  else if (!it.operands.is_none())
    refuse("operands are an epilogue's, which is not there; pass epilogue");
  if (wants_gradients({&a, &b, &bias, &scale_a, &scale_b, &d}, pointers, epilogue)) {
    if (!epilogue) return recorded(it);
    throw std::runtime_error(
        "one of the arguments requires a gradient, and a product with an epilogue of one's own has none; use "
        "torch.no_grad(), or call it in forward() and backward() of a torch.autograd.Function");
  }

  const View &left = a->view(), &right = pointers ? pointers->view() : b->view(), &rows = table->view();
  if (left.rank != (by_counts ? 3 : 2))
    refuse(shape_text("a", left) + (by_counts ? ": with counts it is (groups, M, K)" : ": with offs it is (M, K)"));
  const bool along_k = !by_counts && right.rank == 2;
  if (right.rank != 3 && !along_k)
    refuse(shape_text("b", right) + ": it is (groups, K, N)" + (by_counts ? "" : ", or along k (K, N)"));
  const std::int64_t groups = along_k ? rows.elements() : right.shape[0], n = right.shape[along_k ? 1 : 2],
                     k = right.shape[along_k ? 0 : 1];
  if (left.shape[std::size_t(left.rank - 1)] != k || (by_counts && left.shape[0] != groups))
    refuse(shape_text("a", left) + " and " + shape_text("b", right) + ": they have the same K" +
           (by_counts ? ", and as many groups" : ""));
  if (rows.type != DataType::s32) refuse_type(by_counts ? "counts" : "offs", name_of(rows.type));
  if (rows.rank != 1 || rows.shape[0] != groups || (groups > 1 && rows.strides[0] != 1))
    refuse(shape_text(by_counts ? "counts" : "offs", rows) + ": pass a contiguous (" + std::to_string(groups) +
           ",), a number for each group" + (along_k ? "" : " of b"));

  Product product;
  Problem& p = product.problem;
  p.grouping = along_k ? Grouping::along_k : by_counts ? Grouping::counts : Grouping::offsets;
  p.m = left.shape[by_counts ? 1 : 0];
  p.n = n;
  p.k = k;
  p.batch = groups;
  p.expected_m = it.expected_m;
  if (epilogue) p.epilogue.function = epilogue->epilogue().digest();
  p.a.type = left.type;
  p.b.type = right.type;
  p.d.type = !it.out_dtype.is_none() ? data_type_of(it.out_dtype, "out_dtype")
             : d                     ? d->view().type
                                     : default_output(left.type);
  set_matrix(p.a, left, "a", along_k);
  set_matrix(p.b, right, "b", true);
  if (pointers) {
    p.b.batch_mode = BatchMode::pointers;
    p.b.alignment = pointers->alignment();
  }
  Operands operands;
  for (const auto& [scales, name] : {std::pair{&scale_a, "scale_a"}, {&scale_b, "scale_b"}})
    if (*scales && (*scales)->view().type != DataType::f32)
      throw nb::type_error((std::string(name) + " must be float32").c_str());
  const ScaledOperand scaled_a{"scale_a", "jitgemm.block_scales(scale_a, a)", false, by_counts ? groups : 0, p.m, k},
      scaled_b{"scale_b", "jitgemm.block_scales() of the weights (groups, N, K), its last two dimensions swapped",
               true,      std::max<std::int64_t>(1, groups),
               n,         k};
  if (!along_k && left.type != DataType::s8 && scale_a && scale_b && scale_a->view().rank == scaled_a.rank() &&
      scale_b->view().rank == scaled_b.rank()) {
    operands.scale_a = block_scales_of(scale_a->view(), scaled_a, p.a.scaling);
    operands.scale_b = block_scales_of(scale_b->view(), scaled_b, p.b.scaling);
  } else {
    operands.scale_a =
        scales_of(scale_a, by_counts ? Shape{2, {groups, p.m}} : Shape{1, {p.m}}, "scale_a", p.a.scaling);
    operands.scale_b = scales_of(scale_b, along_k ? Shape{1, {n}} : Shape{2, {groups, n}}, "scale_b", p.b.scaling);
  }
  if (bias) {
    const View expected = contiguous_view(Shape{1, {n}}, type_of_c(p));
    if (!alike(bias->view(), expected))
      refuse("bias is " + form_text(bias->view()) + ": pass " + form_text(expected) + ", the same for all groups");
    p.epilogue.bias = Bias::along_n;
    operands.bias = bias->view().data;
  }

  const bool several = by_counts || along_k;  // results, one a group
  const std::int64_t columns = columns_of_d(p);
  const Shape shape = several ? Shape{3, {groups, p.m, columns}} : Shape{2, {p.m, columns}};
  nb::object out = nb::borrow(it.out);
  const bool made_out = !d;
  if (made_out) {
    out = empty_array(*a, shape, p.d.type);
    d.emplace(out, "out", true, used);
  }
  const View& result = d->view();
  if (result.rank != shape.rank ||
      !std::equal(result.shape.begin(), result.shape.begin() + shape.rank, shape.extents.begin()))
    refuse(shape_text("out", result) + ", and the result " + to_string(shape) + "; pass an array of that shape");
  if (pointers && !made_out && pointers->overlap(result))
    refuse("out overlaps a matrix of b in memory; give it memory of its own");
  if (result.type != p.d.type) throw nb::type_error("out is not of out_dtype; leave out_dtype away");
  set_matrix(p.d, result, "out", false);
  if (it.beta != 0) {
    if (made_out) refuse("beta is of what out has; pass out");
    if (type_of_c(p) != p.d.type)
      refuse(std::string("out is ") + std::string(to_string(p.d.type)) +
             ", to which no kernel adds: leave beta at 0, or give a wider out");
    p.beta = it.beta;
    p.c.ld = p.d.ld;
    p.c.stride = p.d.stride;
    operands.c = result.data;
  }
  operands.a = left.data;
  operands.b = pointers ? pointers->table() : right.data;
  operands.d = result.data;
  operands.group_rows = static_cast<const std::int32_t*>(rows.data);
  std::vector<EpilogueValue> values;
  if (epilogue) {
    epilogue->complete(&*a, shape, used);
    for (const EpilogueArray& array : epilogue->arrays().operands)
      product.epilogue.push_back(place_of(array, shape, groups, several));
    values = epilogue->values(product);
    operands.epilogue = values.data();
    operands.epilogue_count = values.size();
  }

  ContextHandle& context = context_for(it.context, a->place());
  const std::optional<KernelConfig> config = config_of(it.config);
  const Stream stream = stream_for(*context, *a, used, made_out || (epilogue && epilogue->has_made()));
  bool waits = pointers && pointers->must_wait();
  for (const auto* array : {&a, &b, &bias, &table, &scale_a, &scale_b}) waits = waits || must_wait(*array);
  waits = waits || must_wait(d) || (epilogue && epilogue->must_wait());
  run_product(*context, product, operands, stream, config, waits);
  if (made_out)
    out = finished_array(*a, out);
  else if (d->type().is_torch())
    note_written(out);
  return epilogue ? epilogue->result(out, *a) : out;
}

}  // namespace jitgemm::python
