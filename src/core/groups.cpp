#include "core/groups.hpp"

#include "core/operand_matrix.hpp"

namespace jitgemm {

NormalProblem expected_problem(const NormalProblem& problem, std::int64_t groups) {
  NormalProblem p = problem;
  if (!has_groups(p)) return p;
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
