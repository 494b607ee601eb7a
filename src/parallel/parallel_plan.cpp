#include "parallel/parallel_plan.hpp"

#include <algorithm>
#include <utility>

#include "core/out_of_memory.hpp"
#include "parallel/one_shot.hpp"
#include "parallel/overlapped.hpp"
#include "parallel/unfused.hpp"
#include "util/number_text.hpp"

namespace jitgemm {

ParallelPlan plan_of(const RankProblem& problem, const AgreedChoice& choice, Plan gemm, int rank) {
  gemm.config = choice.config;
  gemm.source = choice.source;
  gemm.why = choice.why;
  gemm.measured_us = choice.measured_us;
  ParallelPlan plan;
  plan.exchange = problem.exchange;
  plan.why = choice.why_method;
  plan.rank = rank;
  plan.ranks = problem.ranks;
  plan.received_bytes = received_bytes(problem);
  plan.staging_bytes = UnfusedProduct::staging_bytes(problem);
  plan.gemm_us = gemm.measured_us > 0 ? gemm.measured_us : gemm.predicted.us;
  plan.exposed_us = plan.exchange_us = expected_exchange_us(problem);
  plan.measured_us = choice.together_us;
  plan.gemm = std::move(gemm);
  switch (choice.method) {
    case ParallelMethod::unfused:
      break;
    case ParallelMethod::overlapped:
      plan.overlapped = true;
      plan.staging_bytes = Overlapped::staging_bytes(problem.ranks, problem.asked, problem.exchange, choice.config);
      plan.exposed_us = std::max(0.0, plan.exchange_us - plan.gemm_us);
      break;
    case ParallelMethod::one_shot:
      plan.one_shot = true;
      plan.received_bytes = OneShot::received_bytes(problem);
      plan.staging_bytes += OneShot::memory_bytes(problem);
      plan.exposed_us = plan.exchange_us = OneShot::expected_us(problem);
      break;
  }
  return plan;
}

std::string ParallelPlan::explain() const {
  return with_memory_errors([this] {
    std::string text;
    const auto line = [&text](std::string label, const std::string& value) {
      label.resize(16, ' ');
      text += label + value + '\n';
    };
    const auto us = [](double x) { return fixed_text(x, x < 100 ? 2 : 0) + " us"; };
    line("exchange",
         std::string(to_string(exchange)) + ", this is rank " + std::to_string(rank) + " of " + std::to_string(ranks));
    line("overlapped", std::string(overlapped ? "yes" : one_shot ? "no, one-shot all-reduce" : "no") + ": " + why);
    line("received", std::to_string(received_bytes) + " bytes by each rank");
    line("staging", std::to_string(staging_bytes) + " bytes");
    line("expected", "product " + us(gemm_us) + ", exchange " + us(exchange_us) +
                         ", of which the product does not hide " + us(exposed_us));
    if (measured_us > 0) line("measured", us(measured_us) + " a call, by all ranks together");
    return text + "The product of each rank:\n" + gemm.explain();
  });
}

}  // namespace jitgemm
