#pragma once

#include "jitgemm/tensor_parallel.hpp"
#include "product.hpp"

namespace jitgemm::python {

/// How a product's rows are dealt to the ranks that compute it together: along the first dimension of the arrays.
struct Shards {
  Exchange exchange;
  int ranks;

  bool shares_a() const { return exchange == Exchange::all_gather_a; }      ///< else a rank has all rows of it
  bool shares_d() const { return exchange == Exchange::reduce_scatter_d; }  ///< else a rank gets all rows of it
};

/// What a rank gets of the product of its a and b. Throws ShapeError.
Shape rank_shape(const View& a, const View& b, const Shards& shards);

/// The product as TensorParallel takes it, of the arrays that a rank has; `d` is of rank_shape(). Like describe().
Product describe_shards(const ProductArrays& arrays, const View& d, const Problem& like, const Shards& shards);

}  // namespace jitgemm::python
