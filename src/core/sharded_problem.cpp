#include "core/sharded_problem.hpp"

#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/kernel_interface.hpp"
#include "core/operand_matrix.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm {

std::int64_t staged_ld(std::int64_t columns, DataType type) {
  const auto line = std::int64_t(16 / size_of(type));
  return (columns + line - 1) / line * line;
}

std::string why_not_sharded(const Problem& p, Exchange exchange, int ranks) {
  if (exchange == Exchange::all_reduce_d) return "sums that all ranks get are added up behind the product";
  if (ranks < 2) return "one rank exchanges nothing";
  if (ranks > device::most_ranks) return "more than " + std::to_string(device::most_ranks) + " ranks";
  if (p.m % ranks != 0) return "m is no multiple of the ranks";
  if (is_empty(p) || !reads_ab(p)) return "nothing is multiplied";
  if (p.batch != 1 || has_groups(p)) return "batches and groups";
  if (has_epilogue_function(p)) return "epilogues of the caller's own";
  if (p.a.layout != Layout::row_major) return "a column-major A, whose shards are not rows";
  const std::int64_t lda = p.a.ld != 0 ? p.a.ld : p.k;
  if (exchange == Exchange::all_gather_a && lda != staged_ld(lda, p.a.type))
    return "rows of A that begin at no multiple of 16 bytes";
  if (p.a.scaling != Scaling::value || p.b.scaling != Scaling::value || p.d.scaling != Scaling::value)
    return "scales that are no single values";
  if (exchange == Exchange::reduce_scatter_d && takes_scales(p)) return "scales that are each rank's own";
  if (p.epilogue.bias == Bias::along_m) return "a bias along m";
  if (exchange == Exchange::reduce_scatter_d && p.d.type != f16 && p.d.type != bf16 && p.d.type != f32)
    return "partial sums of a type other than f16, bf16 and f32";
  if (exchange == Exchange::reduce_scatter_d && accumulator_of(p) != f32) return "sums of a type other than f32";
  return {};
}

NormalProblem sharded_problem(const Problem& problem, Exchange exchange, int ranks) {
  Problem p = problem;
  const bool gathers = exchange == Exchange::all_gather_a;
  p.m /= ranks;
  p.batch = ranks;
  p.a.alignment = p.b.alignment = p.c.alignment = p.d.alignment = 16;
  const auto ld_or = [](const Matrix& matrix, std::int64_t packed) { return matrix.ld != 0 ? matrix.ld : packed; };
  p.a.ld = gathers ? staged_ld(p.k, p.a.type) : ld_or(p.a, p.k);
  p.a.stride = p.m * p.a.ld;
  p.b.stride = 0;
  p.d.ld = ld_or(p.d, p.n);
  p.d.stride = p.m * p.d.ld;
  p.c.ld = ld_or(p.c, p.n);
  p.c.stride = gathers ? p.m * p.c.ld : 0;
  NormalProblem sharded = normalise(p);
  sharded.sharding = gathers ? Sharding::gathered_a : Sharding::scattered_d;
  return sharded;
}

NormalProblem problem_of(const RankProblem& problem, ParallelMethod method) {
  switch (method) {
    case ParallelMethod::unfused:
    case ParallelMethod::one_shot:
      return problem.product;
    case ParallelMethod::overlapped:
      break;
  }
  const std::string why = why_not_sharded(problem.asked, problem.exchange, problem.ranks);
  if (!why.empty())
    throw Error(ErrorCode::invalid_problem,
                "communication does not run under this product: " + why + "; leave it unfused");
  return sharded_problem(problem.asked, problem.exchange, problem.ranks);
}

}  // namespace jitgemm
