#include "grouped.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/operand_matrix.hpp"
#include "core/pairing.hpp"
#include "core/type_rules.hpp"
#include "epilogue.hpp"
#include "errors.hpp"
#include "grouped_scales.hpp"
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

/// How the last two dimensions lie in memory; those before them are steps between matrices.
void set_matrix(Matrix& matrix, const View& view, const char* name, bool may_be_columns) {
  const auto rows = std::size_t(view.rank - 2), columns = std::size_t(view.rank - 1);
  const auto lies_in = [&](std::size_t lines, std::size_t along) {
    return (view.shape[along] <= 1 || view.strides[along] == 1) &&
           (view.shape[lines] <= 1 || view.strides[lines] >= view.shape[along]);
  };
  const bool as_rows = lies_in(rows, columns), as_columns = may_be_columns && lies_in(columns, rows);
  if (!as_rows && !as_columns && view.elements() > 0)
    refuse_value(shape_text(name, view) + ", and " +
                 (may_be_columns ? "neither its rows nor its columns lie" : "its rows do not lie") +
                 " contiguous in memory, each before the next; pass a contiguous one, as torch's .contiguous() or "
                 "numpy.ascontiguousarray() makes it");
  const bool by_columns = as_columns && !as_rows;  // steps of an empty one say nothing
  matrix.layout = by_columns ? Layout::column_major : Layout::row_major;
  const std::size_t lines = by_columns ? columns : rows;
  matrix.ld = view.shape[lines] <= 1 || view.elements() == 0 ? 0 : view.strides[lines];
  if (view.rank == 3 && view.shape[0] > 1) matrix.stride = view.strides[0];
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
    refuse_value(shape_text(name.c_str(), view) +
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
    refuse_value(shape_text(name.c_str(), view) +
                 ", and its rows do not lie contiguous, one after another; pass a contiguous one");
  Product::Place place;
  if (matrix && view.shape[last - 1] > 1) place.ld = view.strides[last - 1];
  if (view.rank == (matrix ? 3 : 2) && view.shape[0] > 1) place.stride = view.strides[0];
  return place;
}

/// The arguments of one call as they become a product of groups.
class GroupedCall {
 public:
  /// Loads the arrays.
  explicit GroupedCall(const GroupedArguments& arguments);
  /// Whether autograd records it. Throws RuntimeError where torch would have to look into it.
  bool wants_gradients() const;
  bool has_epilogue() const { return epilogue_.has_value(); }
  nb::object run();

 private:
  const char* table_name() const { return by_counts_ ? "counts" : "offs"; }
  /// One a group, by counts and along k.
  bool has_several_results() const { return by_counts_ || along_k_; }
  const View& b() const { return pointers_ ? pointers_->view() : b_->view(); }
  // The steps of run(), in this order.
  void set_sizes();
  void set_types_and_layouts();
  void set_scales();
  void set_bias();
  void set_result();
  void set_sum();
  void set_epilogue();
  bool must_wait() const;

  const GroupedArguments& it_;
  bool by_counts_, along_k_ = false;
  std::optional<std::intptr_t> asked_stream_;
  const MatrixPointers* pointers_ = nullptr;
  std::optional<Array> a_, b_, bias_, table_, scale_a_, scale_b_, d_;
  std::optional<EpilogueCall> epilogue_;
  Product product_;
  Problem& problem_ = product_.problem;
  Operands operands_;
  std::vector<EpilogueValue> epilogue_values_;
  Shape shape_;  // of the result
  nb::object out_;
  bool made_out_ = false;
};

GroupedCall::GroupedCall(const GroupedArguments& it)
    : it_(it), by_counts_(!it.counts.is_none()), asked_stream_(stream_asked_for(it.stream)) {
  if (by_counts_ == !it.offs.is_none())
    refuse_value(
        "rows are in groups by offs, where each one's rows of a end, or by counts, how many each has; pass one of "
        "them");
  if (nb::isinstance<MatrixPointers>(it.b)) {
    pointers_ = nb::cast<const MatrixPointers*>(it.b);
    pointers_->require_arrays();
  }
  if (nb::isinstance<nb::list>(it.b) || nb::isinstance<nb::tuple>(it.b))
    throw nb::type_error("b is several arrays; make jitgemm.MatrixPointers of them once, and pass those");
  const auto load = [&](std::optional<Array>& array, nb::handle argument, const char* name, bool written = false) {
    if (!argument.is_none()) array.emplace(argument, name, written, asked_stream_);
  };
  load(a_, it.a, "a");
  if (!pointers_) load(b_, it.b, "b");
  load(bias_, it.bias, "bias");
  load(table_, by_counts_ ? it.counts : it.offs, table_name());
  load(scale_a_, it.scale_a, "scale_a");
  load(scale_b_, it.scale_b, "scale_b");
  load(d_, it.out, "out", true);
  if (!a_ || !(b_ || pointers_)) throw nb::type_error("a and b are arrays; pass both");
  for (const auto& [array, name] : {std::pair{&b_, "b"},
                                    {&bias_, "bias"},
                                    {&table_, table_name()},
                                    {&scale_a_, "scale_a"},
                                    {&scale_b_, "scale_b"},
                                    {&d_, "out"}})
    if (*array) require_place((*array)->place(), name, a_->place());
  if (pointers_) require_place(pointers_->place(), "b", a_->place());
  if (!it.epilogue.is_none())
    epilogue_.emplace(it.epilogue, it.operands, a_->place(), asked_stream_);
  else if (!it.operands.is_none())
    refuse_value("operands are an epilogue's, which is not there; pass epilogue");
}

bool GroupedCall::wants_gradients() const {
  bool of_torch = false, asks_for_gradients = false;
  if (pointers_ && knows_torch() && pointers_->requires_gradients()) of_torch = asks_for_gradients = true;
  for (const auto* array : {&a_, &b_, &bias_, &scale_a_, &scale_b_, &d_}) {
    if (!*array || !(*array)->type().is_torch()) continue;
    of_torch = true;
    asks_for_gradients = asks_for_gradients || requires_gradient(**array);
  }
  if (epilogue_ && epilogue_->requires_gradients()) of_torch = asks_for_gradients = true;
  if (!of_torch) return false;
  const TorchState state = torch_state();
  if (state.known && state.watched)
    throw std::runtime_error(
        "grouped_mm computes past torch's operators, which something here looks at (torch.func, a mode, a trace); call "
        "it outside of that");
  return state.gradients && asks_for_gradients;
}

nb::object GroupedCall::run() {
  set_sizes();
  set_types_and_layouts();
  set_scales();
  if (bias_) set_bias();
  set_result();
  if (it_.beta != 0) set_sum();
  if (epilogue_) set_epilogue();

  ContextHandle& context = context_for(it_.context, a_->place());
  const std::optional<KernelConfig> config = config_of(it_.config);
  const Stream stream = stream_for(*context, *a_, asked_stream_, made_out_ || (epilogue_ && epilogue_->has_made()));
  run_product(*context, product_, operands_, stream, config, must_wait());
  if (made_out_)
    out_ = finished_array(*a_, out_);
  else if (d_->type().is_torch())
    note_written(out_);
  return epilogue_ ? epilogue_->result(out_, *a_) : out_;
}

void GroupedCall::set_sizes() {
  const View &left = a_->view(), &right = b(), &rows = table_->view();
  if (left.rank != (by_counts_ ? 3 : 2))
    refuse_value(shape_text("a", left) +
                 (by_counts_ ? ": with counts it is (groups, M, K)" : ": with offs it is (M, K)"));
  along_k_ = !by_counts_ && right.rank == 2;
  if (right.rank != 3 && !along_k_)
    refuse_value(shape_text("b", right) + ": it is (groups, K, N)" + (by_counts_ ? "" : ", or along k (K, N)"));
  Problem& p = problem_;
  p.grouping = along_k_ ? Grouping::along_k : by_counts_ ? Grouping::counts : Grouping::offsets;
  p.m = left.shape[by_counts_ ? 1 : 0];
  p.n = right.shape[along_k_ ? 1 : 2];
  p.k = right.shape[along_k_ ? 0 : 1];
  p.batch = along_k_ ? rows.elements() : right.shape[0];
  p.expected_m = it_.expected_m;
  if (left.shape[std::size_t(left.rank - 1)] != p.k || (by_counts_ && left.shape[0] != p.batch))
    refuse_value(shape_text("a", left) + " and " + shape_text("b", right) + ": they have the same K" +
                 (by_counts_ ? ", and as many groups" : ""));
  if (rows.type != DataType::s32) refuse_type(table_name(), name_of(rows.type));
  if (rows.rank != 1 || rows.shape[0] != p.batch || (p.batch > 1 && rows.strides[0] != 1))
    refuse_value(shape_text(table_name(), rows) + ": pass a contiguous (" + std::to_string(p.batch) +
                 ",), a number for each group" + (along_k_ ? "" : " of b"));
  operands_.group_rows = static_cast<const std::int32_t*>(rows.data);
}

void GroupedCall::set_types_and_layouts() {
  const View &left = a_->view(), &right = b();
  Problem& p = problem_;
  p.a.type = left.type;
  p.b.type = right.type;
  p.d.type = !it_.out_dtype.is_none() ? data_type_of(it_.out_dtype, "out_dtype")
             : d_                     ? d_->view().type
                                      : default_output(left.type);
  if (epilogue_) p.epilogue.function = epilogue_->epilogue().digest();
  set_matrix(p.a, left, "a", along_k_);
  set_matrix(p.b, right, "b", true);
  if (pointers_) {
    p.b.batch_mode = BatchMode::pointers;
    p.b.alignment = pointers_->alignment();
  }
  operands_.a = left.data;
  operands_.b = pointers_ ? pointers_->table() : right.data;
}

void GroupedCall::set_scales() {
  Problem& p = problem_;
  for (const auto& [scales, name] : {std::pair{&scale_a_, "scale_a"}, {&scale_b_, "scale_b"}}) {
    if (!*scales) continue;
    if ((*scales)->view().type != DataType::f32) throw nb::type_error((std::string(name) + " must be float32").c_str());
    // The library's own advice is matmul's alpha.
    if (!takes_scales(p))
      refuse_value(std::string(name) + " is given where a is " + name_of(p.a.type) + " and the result " +
                   name_of(p.d.type) + ", and kernels scale 8-bit floats, and int8 into floating-point results; " +
                   (p.a.type == DataType::s8 ? "pass a floating-point out or out_dtype"
                                             : "multiply the operand, or the result, by it"));
  }
  const ScaledOperand scaled_a{"scale_a", "jitgemm.block_scales(scale_a, a)", false, by_counts_ ? p.batch : 0, p.m,
                               p.k},
      scaled_b{"scale_b", "jitgemm.block_scales() of the weights (groups, N, K), its last two dimensions swapped",
               true,      std::max<std::int64_t>(1, p.batch),
               p.n,       p.k};
  const bool may_be_blocks = !along_k_ && p.a.type != DataType::s8;
  if (may_be_blocks && scale_a_ && scale_b_ && scale_a_->view().rank == scaled_a.rank() &&
      scale_b_->view().rank == scaled_b.rank()) {
    operands_.scale_a = block_scales_of(scale_a_->view(), scaled_a, p.a.scaling);
    operands_.scale_b = block_scales_of(scale_b_->view(), scaled_b, p.b.scaling);
    return;
  }
  operands_.scale_a = scales_of(scale_a_, by_counts_ ? Shape{2, {p.batch, p.m}} : Shape{1, {p.m}}, "scale_a",
                                may_be_blocks, p.a.scaling);
  operands_.scale_b =
      scales_of(scale_b_, along_k_ ? Shape{1, {p.n}} : Shape{2, {p.batch, p.n}}, "scale_b", may_be_blocks, p.b.scaling);
}

void GroupedCall::set_bias() {
  const View expected = contiguous_view(Shape{1, {problem_.n}}, type_of_c(problem_));
  if (!alike(bias_->view(), expected))
    refuse_value("bias is " + form_text(bias_->view()) + ": pass " + form_text(expected) + ", the same for all groups");
  problem_.epilogue.bias = Bias::along_n;
  operands_.bias = bias_->view().data;
}

void GroupedCall::set_result() {
  Problem& p = problem_;
  const std::int64_t columns = columns_of_d(p);
  shape_ = has_several_results() ? Shape{3, {p.batch, p.m, columns}} : Shape{2, {p.m, columns}};
  out_ = nb::borrow(it_.out);
  made_out_ = !d_;
  if (made_out_) {
    out_ = empty_array(*a_, shape_, p.d.type);
    d_.emplace(out_, "out", true, asked_stream_);
  }
  const View& result = d_->view();
  if (result.rank != shape_.rank ||
      !std::equal(result.shape.begin(), result.shape.begin() + shape_.rank, shape_.extents.begin()))
    refuse_value(shape_text("out", result) + ", and the result " + to_string(shape_) + "; pass an array of that shape");
  if (pointers_ && !made_out_ && pointers_->overlap(result))
    refuse_value("out overlaps a matrix of b in memory; give it memory of its own");
  if (result.type != p.d.type) throw nb::type_error("out is not of out_dtype; leave out_dtype away");
  set_matrix(p.d, result, "out", false);
  operands_.d = result.data;
}

void GroupedCall::set_sum() {
  Problem& p = problem_;
  if (made_out_) refuse_value("beta is of what out has; pass out");
  if (type_of_c(p) != p.d.type)
    refuse_value(std::string("out is ") + std::string(to_string(p.d.type)) +
                 ", to which no kernel adds: leave beta at 0, or give a wider out");
  p.beta = it_.beta;
  p.c.ld = p.d.ld;
  p.c.stride = p.d.stride;
  operands_.c = operands_.d;
}

void GroupedCall::set_epilogue() {
  epilogue_->complete(&*a_, shape_, asked_stream_);
  for (const EpilogueArray& array : epilogue_->arrays().operands)
    product_.epilogue.push_back(place_of(array, shape_, problem_.batch, has_several_results()));
  epilogue_values_ = epilogue_->values(product_);
  operands_.epilogue = epilogue_values_.data();
  operands_.epilogue_count = epilogue_values_.size();
}

bool GroupedCall::must_wait() const {
  if ((pointers_ && pointers_->must_wait()) || (epilogue_ && epilogue_->must_wait())) return true;
  return std::ranges::any_of(std::array{&a_, &b_, &bias_, &table_, &scale_a_, &scale_b_, &d_},
                             [](const std::optional<Array>* array) { return python::must_wait(*array); });
}

nb::object recorded(const GroupedArguments& it) {
  static constinit Imported function("jitgemm._grouped", "recorded");
  return (*function)(it.a, it.b, it.offs, it.bias, it.out_dtype, it.out, !it.scale_a.is_none() || !it.scale_b.is_none(),
                     it.expected_m, it.config, it.stream, it.context);
}

}  // namespace

nb::object grouped_mm(const GroupedArguments& it) {
  GroupedCall call(it);
  if (!call.wants_gradients()) return call.run();
  if (!call.has_epilogue()) return recorded(it);
  throw std::runtime_error(
      "one of the arguments requires a gradient, and a product with an epilogue of one's own has none; use "
      "torch.no_grad(), or call it in forward() and backward() of a torch.autograd.Function");
}

}  // namespace jitgemm::python
