#include "core/rank_problem.hpp"

#include <bit>
#include <cstdint>

#include "core/epilogue_function.hpp"
#include "core/groups.hpp"
#include "core/occupied.hpp"
#include "core/operand_matrix.hpp"
#include "core/operands.hpp"
#include "core/pairing.hpp"
#include "core/type_rules.hpp"
#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

/// Empty, or what of the problem no exchange serves and the way out.
std::string why_not_across_ranks(const Problem& p, Exchange exchange, int ranks) {
  const std::string name(to_string(exchange));
  if (name == "unknown") return "there is no such exchange; use an enumerator of Exchange";
  if (has_groups(p)) return name + " takes no groups; multiply them with Context::gemm()";
  if (p.batch > 1) return name + " takes no batch; call it for each matrix";
  if (has_pairs(p)) return name + " takes no gated pairs of columns; apply them to D";
  if (has_epilogue_function(p)) return name + " takes no epilogue function of the caller's own; apply it to D";
  if (has_vector_scales(p)) return name + " takes no vectors of scales; give single values, or scale D";
  if (has_block_scales(p)) return name + " takes no scales of blocks; multiply with Context::gemm()";
  if (has_own_scales_d(p)) return name + " gives D no scales of its own; give scale_d";
  if (exchange == Exchange::all_gather_a && p.a.layout == Layout::column_major && ranks > 1)
    return "all_gather_a takes a row-major A, whose ranks' rows lie one after the other; transpose A";
  if (exchange != Exchange::all_reduce_d && p.m % ranks != 0) {
    return "m = " + std::to_string(p.m) + " is not divided by " + std::to_string(ranks) + " ranks, as " + name +
           " needs; pad M to a multiple of " + std::to_string(ranks);
  }
  return {};
}

Matrix alone(DataType type) { return {.type = type}; }

NormalProblem product_of_sums(const NormalProblem& asked, bool in_d) {
  Problem p = asked;
  p.alpha = 1;
  p.beta = 0;
  p.epilogue = {};
  p.c = {.type = DataType::automatic};
  p.d = alone(type_of_c(asked));
  if (in_d) p.d.alignment = asked.d.alignment;
  return normalise(p);
}

NormalProblem finish_of(const NormalProblem& asked, std::int64_t rows) {
  Problem p = asked;
  p.m = rows;
  p.k = 0;
  p.a = alone(asked.a.type);
  p.b = alone(asked.b.type);
  return normalise(p);
}

bool is_in_one_piece(const NormalProblem& d) { return d.d.ld == d.n || d.m <= 1; }

struct Named {
  const char* name;
  Occupied memory;
};

void check_apart(const Occupied& d, const Named& input) {
  if (!d.overlaps(input.memory)) return;
  throw Error(ErrorCode::invalid_operand,
              std::string("D overlaps ") + input.name + " in memory: give D memory of its own");
}

void check_aligned(const char* name, const Matrix& prepared, const Matrix& given) {
  if (given.alignment >= prepared.alignment) return;
  throw Error(ErrorCode::invalid_operand, std::string(name) + " is aligned to " + std::to_string(given.alignment) +
                                              " bytes where the problem says " + std::to_string(prepared.alignment) +
                                              ", by which all ranks have chosen: align it, or give the problem of all "
                                              "ranks this alignment");
}

void check_alignments(const NormalProblem& prepared, const NormalProblem& given) {
  if (reads_ab(prepared)) {
    check_aligned("A", prepared.a, given.a);
    check_aligned("B", prepared.b, given.b);
  }
  if (reads_c(prepared)) check_aligned("C", prepared.c, given.c);
  check_aligned("D", prepared.d, given.d);
}

}  // namespace

RankProblem rank_problem(const Problem& problem, Exchange exchange, int ranks) {
  RankProblem p;
  p.asked = normalise(problem);
  p.exchange = exchange;
  p.ranks = ranks;
  if (const std::string why = why_not_across_ranks(p.asked, exchange, ranks); !why.empty())
    throw Error(ErrorCode::invalid_problem, why).with_problem(to_string(problem));
  p.rows_of_a = exchange == Exchange::all_gather_a ? p.asked.m / ranks : p.asked.m;
  p.rows_of_d = exchange == Exchange::reduce_scatter_d ? p.asked.m / ranks : p.asked.m;
  p.communicates = ranks > 1 && reads_ab(p.asked);
  if (!p.communicates) {
    Problem own = p.asked;
    own.m = p.rows_of_d;
    p.product = normalise(own);
  } else if (!p.reduces()) {
    Problem gathered = p.asked;
    gathered.a = alone(p.asked.a.type);
    p.product = normalise(gathered);
  } else {
    p.finish = finish_of(p.asked, p.rows_of_d);
    p.finish_is_trivial = p.asked.alpha == 1 && !reads_c(p.asked) && p.asked.epilogue.bias == Bias::none &&
                          p.asked.epilogue.activation == Activation::none && p.asked.d.type == type_of_c(p.asked) &&
                          is_in_one_piece(p.finish);
    p.product = product_of_sums(p.asked, sums_in_d(p));
  }
  return p;
}

bool sums_in_d(const RankProblem& p) {
  return p.communicates && p.exchange == Exchange::all_reduce_d && p.asked.d.type == type_of_c(p.asked) &&
         !reads_c(p.asked) && is_in_one_piece(p.asked);
}

Operands operands_of_sums(const RankProblem& p, const Operands& operands, void* staging) {
  Operands product = operands;
  product.d = sums_in_d(p) ? operands.d : staging;
  product.c = product.bias = nullptr;
  product.scale_d = nullptr;
  return product;
}

NormalProblem prepared_shape(const RankProblem& p) {
  Problem shape = shape_of(p.asked);
  shape.alpha = p.asked.alpha == 1 || p.asked.alpha == 0 ? p.asked.alpha : 2;  // a sum that is D as it is needs no more
  return normalise(shape);
}

void check_operands(const RankProblem& p, const Operands& operands, const Operands& product) {
  if (is_empty(p.product)) return;
  check_alignments(p.product, with_operands(p.product, product));
  if (!p.communicates) return;
  const Occupied d(operands.d, matrix_d(p.reduces() ? p.finish : p.product));
  if (p.reduces()) {
    check_alignments(p.finish, with_operands(p.finish, operands));
    check_apart(d, {"A", {operands.a, matrix_a(p.asked)}});
    check_apart(d, {"B", {operands.b, matrix_b(p.asked)}});
  } else {
    Problem shard = p.asked;
    shard.m = p.rows_of_a;
    if (operands.a == nullptr)
      throw Error(ErrorCode::invalid_operand, "A is null but the problem uses it: pass its memory");
    if (std::bit_cast<std::uintptr_t>(operands.a) % size_of(p.asked.a.type) != 0) {
      throw Error(ErrorCode::invalid_operand,
                  "A is not a multiple of " + std::to_string(size_of(p.asked.a.type)) + " bytes: align the pointer");
    }
    check_apart(d, {"A", {operands.a, matrix_a(shard)}});
  }
}

}  // namespace jitgemm
