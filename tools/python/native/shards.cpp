#include "shards.hpp"

#include <string>

namespace jitgemm::python {
namespace {

/// One with the rows of all ranks, of which the first ones are there.
View of_all_ranks(View view, int ranks) {
  if (view.rank < 2) return view;
  std::int64_t row = view.shape[std::size_t(view.rank - 1)];
  for (int i = view.rank - 2; i > 0; --i) {
    const auto at = std::size_t(i);
    row = view.shape[at] * (view.shape[at] == 1 ? row : view.strides[at]);
  }
  if (view.shape[0] == 1) view.strides[0] = row;  // which said nothing
  view.shape[0] *= ranks;
  return view;
}

/// Ranks gather rows, each in one piece.
void gather_rows(Product& product, const View& a) {
  Matrix& matrix = product.problem.a;
  if (a.elements() == 0 || matrix.layout == Layout::row_major) return;
  product.copy_a = !alike(a, contiguous_view(shape_of(a), a.type));
  matrix.layout = Layout::row_major;  // as the copy is, and as one column can be said to be
  matrix.ld = 0;
}

bool is_column(const View& bias) { return bias.rank == 2 && bias.shape[1] == 1; }

}  // namespace

Shape rank_shape(const View& a, const View& b, const Shards& shards) {
  if (a.rank < 2)
    throw ShapeError(shape_text("a", a) + "; pass one of shape (rows, K), whose rows are dealt to the ranks");
  if (b.rank != 2)
    throw ShapeError(shape_text("b", b) + "; products across ranks take one matrix (K, N); call for each of a batch");
  Shape shape = product_shape(a, b);
  if (shards.shares_a()) shape.extents[0] *= shards.ranks;
  if (!shards.shares_d()) return shape;
  if (shape.extents[0] % shards.ranks != 0) {
    throw ShapeError(shape_text("a", a) + ", whose " + std::to_string(shape.extents[0]) + " rows are not divided by " +
                     std::to_string(shards.ranks) + " ranks; pad them to a multiple");
  }
  shape.extents[0] /= shards.ranks;
  return shape;
}

Product describe_shards(const ProductArrays& arrays, const View& d, const Problem& like, const Shards& shards) {
  View a = *arrays.a, whole = d, c, bias;
  ProductArrays of_all{&a, arrays.b};
  if (arrays.c) of_all.c = &(c = *arrays.c);
  if (arrays.bias) of_all.bias = &(bias = *arrays.bias);
  if (arrays.c && to_string(shape_of(c)) != to_string(shape_of(d))) {
    throw ShapeError(shape_text("c", c) + " and the result " + to_string(shape_of(d)) +
                     ": they must be alike, of the rows that this rank gets; what is added to each row is a bias");
  }
  if (shards.shares_a()) a = of_all_ranks(a, shards.ranks);
  if (shards.shares_d()) {
    whole = of_all_ranks(d, shards.ranks);
    c = of_all_ranks(c, shards.ranks);
    if (arrays.bias && is_column(bias)) bias = of_all_ranks(bias, shards.ranks);
  }
  Product product = describe(of_all, whole, like);
  if (whole.elements() == 0) product.problem.batch = 1;
  if (product.swapped)
    throw ShapeError("out is " + form_text(d) +
                     ", and ranks exchange rows; pass one that is contiguous in its last "
                     "dimension");
  if (product.loops > 0 || product.problem.batch != 1)
    throw ShapeError("the rows of " + std::string(arrays.c ? "a, c or out" : "a or out") +
                     " do not follow each other at one stride through all dimensions but the last, as ranks exchange "
                     "them; pass contiguous arrays");
  if (shards.shares_a()) gather_rows(product, *arrays.a);
  return product;
}

}  // namespace jitgemm::python
