#include "core/groups.hpp"

#include "core/operand_matrix.hpp"

namespace jitgemm {

std::string why_groups_unsupported(const Problem& p) {
  if (has_groups_of_rows(p) && p.a.layout != Layout::row_major)
    return "groups are of rows, and A is column-major: give a row-major A, or groups along k";
  return {};
}

NormalProblem expected_problem(const NormalProblem& problem, std::int64_t groups) {
  NormalProblem p = problem;
  if (!has_groups(p)) return p;
  if (p.grouping == Grouping::along_k) {
    constexpr std::int64_t aligned = 64;  // elements, so that what can be loaded stays so
    p.k = p.expected_m = expected_rows(problem);
    p.batch = groups;
    p.a.stride = p.batch > 1 ? (p.m * p.k + aligned - 1) / aligned * aligned : 0;
    p.b.stride = p.batch > 1 ? (p.n * p.k + aligned - 1) / aligned * aligned : 0;
    return p;
  }
  p.grouping = Grouping::counts;
  p.m = p.expected_m = expected_rows(problem);
  p.batch = groups;
  const auto one_behind_the_other = [&p](Matrix& matrix) { matrix.stride = p.batch > 1 ? p.m * matrix.ld : 0; };
  one_behind_the_other(p.a);
  one_behind_the_other(p.d);
  if (reads_c(p)) one_behind_the_other(p.c);
  if (p.batch <= 1) p.b.stride = 0;
  return p;
}

}  // namespace jitgemm
