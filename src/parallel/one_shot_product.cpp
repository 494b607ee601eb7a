#include "parallel/one_shot_product.hpp"

#include "parallel/unfused.hpp"

namespace jitgemm {

OneShotProduct::OneShotProduct(Context& context, OneShot& one_shot, const RankProblem& problem,
                               const KernelConfig& config)
    : context_(context),
      one_shot_(one_shot),
      config_(config),
      staging_bytes_(UnfusedProduct::staging_bytes(problem)),
      prepared_(one_shot.prepare(problem)) {
  ContextInternals::make_ready(context, problem.product, config);
}

void OneShotProduct::enqueue(const RankProblem& p, const Operands& operands, void* staging, Stream stream) {
  const Operands product = operands_of_sums(p, operands, staging);
  check_operands(p, operands, product);
  context_.gemm(p.product, product, stream, config_);
  one_shot_.enqueue(prepared_, p.finish, operands, product.d, stream);
}

}  // namespace jitgemm
