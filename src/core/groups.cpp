#include "core/groups.hpp"

#include "core/data_types.hpp"
#include "core/enumerators.hpp"
#include "core/operand_matrix.hpp"

namespace jitgemm {
namespace {

// More rows a group, or groups with rows, change no choice: a group is then as a matrix alone, or an H200's 132 SMs
// have 32 tiles of 128 x 128 each. Fewer groups than four show little of how their sizes differ; so much memory of B
// is taken for others only. Along k the same goes for k, and for the memory of A, B and D.
constexpr std::int64_t most_typical_rows = 8192, most_typical_tiles = 32 * 132, few_groups = 4;
constexpr std::int64_t typical_tile = 128;
constexpr double most_typical_bytes = 3.0 * (1 << 30);

/// Rows of tiles, rows and columns of matrices one behind the other, of `rows` rows each.
void one_behind_the_other(NormalProblem& p, std::int64_t rows) {
  const auto follow = [&](Matrix& matrix) { matrix.stride = p.batch > 1 ? rows * matrix.ld : 0; };
  follow(p.a);
  follow(p.d);
  if (reads_c(p)) follow(p.c);
  if (p.batch <= 1) p.b.stride = 0;
}

/// A bucket of a problem's groups, of which each has a D of m x n and so many bytes that no other shares.
std::int64_t typical_groups(const NormalProblem& p, std::int64_t m, std::int64_t n, double bytes) {
  const auto tiles_of = [](std::int64_t x) { return (x + typical_tile - 1) / typical_tile; };
  const double by_tiles = double(most_typical_tiles) / double(std::max<std::int64_t>(1, tiles_of(m) * tiles_of(n)));
  const auto enough =
      std::int64_t(std::max(double(few_groups), std::min(by_tiles, most_typical_bytes / std::max(1.0, bytes))));
  return std::min(bucket_of(std::max<std::int64_t>(1, expected_groups(p))), enough);
}

/// Elements from an operand's element to the next one along k.
std::int64_t step_of_k(const Matrix& matrix, Layout k_outermost) {
  return matrix.layout == k_outermost ? matrix.ld : 1;
}

/// Room for `k` where k is along the rows in memory, which stay aligned as they are.
void make_room_for_k(Matrix& matrix, Layout k_outermost, std::int64_t k) {
  if (matrix.layout != k_outermost) matrix.ld *= (k + matrix.ld - 1) / matrix.ld;
}

NormalProblem typical_along_k(const NormalProblem& problem) {
  NormalProblem p = problem;
  if (p.k == 0 || p.batch == 0) return p;
  p.expected_m = std::min(expected_rows(problem), most_typical_rows);
  const double of_d = double(p.m) * double(p.n) * double(size_of(p.d.type)),
               of_ab = double(p.m + p.n) * double(p.expected_m) * double(size_of(p.a.type));
  p.batch = typical_groups(problem, p.m, p.n, of_d + of_ab);
  p.k = p.batch * p.expected_m;
  make_room_for_k(p.a, Layout::column_major, p.k);
  make_room_for_k(p.b, Layout::row_major, p.k);
  if (p.batch <= 1) p.c.stride = p.d.stride = 0;
  return p;
}

}  // namespace

std::string why_groups_unsupported(const Problem& p) {
  if (has_groups_of_rows(p) && p.a.layout != Layout::row_major)
    return "groups are of rows, and A is column-major: give a row-major A, or groups along k";
  if (has_groups(p) && p.batch >= std::int64_t(1) << 30)
    return "batch = " + std::to_string(p.batch) + " is too many groups: give less than 2^30";
  if (p.expected_m != 0 && !has_groups(p))
    return "expected_m is of groups, and the problem has none: use grouping = offsets, counts or along_k, or "
           "expected_m = 0";
  for (const Matrix* matrix : {&p.a, &p.b, &p.c, &p.d})
    if (!is_known(matrix->batch_mode)) return "unknown batch mode: use " + names_of_all<BatchMode>();
  for (const Matrix* matrix : {&p.a, &p.c, &p.d})
    if (matrix->batch_mode != BatchMode::strided)
      return "pointers name the matrices of B alone: leave batch_mode_a, batch_mode_c and batch_mode_d at strided";
  if (has_pointers_to_b(p) && !has_groups_of_rows(p))
    return "pointers name the B of each group of rows, and the problem has no such groups: use grouping = offsets or "
           "counts, or batch_mode_b = strided";
  return {};
}

NormalProblem expected_problem(const NormalProblem& problem, std::int64_t groups) {
  NormalProblem p = problem;
  if (!has_groups(p)) return p;
  if (p.grouping == Grouping::along_k) {
    constexpr std::int64_t aligned = 64;  // elements, so that what can be loaded stays so
    p.expected_m = expected_rows(problem);
    p.k = problem.k == 0 ? 0 : p.expected_m;  // without any k nothing is multiplied
    p.batch = groups;
    p.a.stride = p.batch > 1 ? (p.m * p.k + aligned - 1) / aligned * aligned : 0;
    p.b.stride = p.batch > 1 ? (p.n * p.k + aligned - 1) / aligned * aligned : 0;
    return p;
  }
  p.grouping = Grouping::counts;
  p.m = p.expected_m = expected_rows(problem);
  p.batch = groups;
  one_behind_the_other(p, p.m);
  return p;
}

NormalProblem typical_problem(const NormalProblem& problem) {
  NormalProblem p = problem;
  if (!has_groups(p)) return p;
  if (p.grouping == Grouping::along_k) return typical_along_k(p);
  const std::int64_t rows = p.expected_m = std::min(expected_rows(problem), most_typical_rows);
  p.batch = typical_groups(problem, rows, p.n, double(p.n) * double(p.k) * double(size_of(p.b.type)));
  if (p.grouping == Grouping::offsets) {
    p.m = p.batch * rows;
  } else {
    p.m = std::clamp(problem.m, rows, 4 * rows);
    one_behind_the_other(p, p.m);
  }
  if (p.batch <= 1) p.b.stride = 0;
  return p;
}

NormalProblem as_batch(const NormalProblem& typical) {
  NormalProblem p = typical;
  if (!has_groups(p)) return p;
  p.grouping = Grouping::none;
  p.expected_m = 0;
  p.b.batch_mode = BatchMode::strided;
  if (typical.grouping == Grouping::offsets) {
    p.m = typical.m / std::max<std::int64_t>(1, typical.batch);
    one_behind_the_other(p, p.m);
  } else if (typical.grouping == Grouping::along_k) {
    p.k = typical.k / std::max<std::int64_t>(1, typical.batch);
    p.a.stride = p.batch > 1 ? p.k * step_of_k(p.a, Layout::column_major) : 0;
    p.b.stride = p.batch > 1 ? p.k * step_of_k(p.b, Layout::row_major) : 0;
  } else {
    p.m = typical.expected_m;
  }
  return p;
}

}  // namespace jitgemm
