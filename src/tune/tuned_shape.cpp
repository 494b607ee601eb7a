#include "tune/tuned_shape.hpp"

#include <algorithm>
#include <bit>

#include "core/groups.hpp"
#include "core/type_rules.hpp"

namespace jitgemm {

NormalProblem tuned_shape(const NormalProblem& shape, bool bucket_m) {
  NormalProblem tuned = without_epilogue_function(shape);  // which is served by what is best without it
  tuned.d.scaling = Scaling::value;                        // so are D's own scales
  if (has_groups(tuned)) return typical_problem(tuned);
  if (!bucket_m || shape.m < 2 || shape.batch > 1) return tuned;
  const auto bucket = std::int64_t(std::bit_ceil(std::uint64_t(shape.m)));
  if (bucket > INT32_MAX) return tuned;
  tuned.m = bucket;
  // Room for the bucket, and the same alignment of columns: a power of two above m has at least that of lda.
  if (tuned.a.layout == Layout::column_major) tuned.a.ld = std::max(tuned.a.ld, tuned.m);
  return tuned;
}

bool takes_as_long(const NormalProblem& tuned, const NormalProblem& shape) {
  return tuned.m == shape.m && tuned.k == shape.k && tuned.batch == shape.batch;
}

}  // namespace jitgemm
