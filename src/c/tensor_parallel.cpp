// Products across ranks.
#include "jitgemm/tensor_parallel.hpp"

#include "c/handles.hpp"
#include "c/text.hpp"
#include "c/values.hpp"

struct jitgemm_tensor_parallel {
  const std::shared_ptr<jitgemm::Context> context;  // outlives the other
  jitgemm::TensorParallel parallel;
};

namespace jitgemm::c {
namespace {

jitgemm_tensor_parallel_options to_c(const TensorParallelOptions& options) {
  const auto& [overlap, staging_bytes, timeout_seconds] = options;
  return {sizeof(jitgemm_tensor_parallel_options), staging_bytes, timeout_seconds, int(overlap), 0};
}

jitgemm_parallel_plan_info to_c(const ParallelPlan& plan) {
  const auto& [gemm, exchange, overlapped, one_shot, why, rank, ranks, received_bytes, staging_bytes, gemm_us,
               exchange_us, exposed_us, measured_us] = plan;
  return {sizeof(jitgemm_parallel_plan_info),
          int(exchange),
          overlapped,
          rank,
          ranks,
          received_bytes,
          staging_bytes,
          gemm_us,
          exchange_us,
          exposed_us,
          measured_us,
          one_shot,
          0};
}

}  // namespace

JITGEMM_VERSIONED(jitgemm_tensor_parallel_options, to_c(TensorParallelOptions{}), 32)
JITGEMM_VERSIONED(jitgemm_parallel_plan_info, to_c(ParallelPlan{}), 64, 80)

namespace {

TensorParallelOptions options_of(const jitgemm_tensor_parallel_options* given_options) {
  const jitgemm_tensor_parallel_options from = read(given_options);
  check_reserved("jitgemm_tensor_parallel_options", from.reserved);
  return {.overlap = enumerator_of<Overlap>(from.overlap),
          .staging_bytes = from.staging_bytes,
          .timeout_seconds = from.timeout_seconds};
}

TensorParallel& in(jitgemm_tensor_parallel* parallel) { return given(parallel, "parallel").parallel; }

}  // namespace
}  // namespace jitgemm::c

using namespace jitgemm::c;

jitgemm_status jitgemm_tensor_parallel_options_init_sized(jitgemm_tensor_parallel_options* options, std::size_t size) {
  return guarded([&] { init(options, size); });
}
jitgemm_status jitgemm_parallel_plan_info_init_sized(jitgemm_parallel_plan_info* info, std::size_t size) {
  return guarded([&] { init(info, size); });
}

const char* jitgemm_exchange_name(jitgemm_exchange exchange) {
  return to_string(enumerator_of<jitgemm::Exchange>(exchange)).data();  // a literal, so it ends in a NUL
}

jitgemm_status jitgemm_tensor_parallel_create(jitgemm_context* context, jitgemm_nccl_communicator communicator,
                                              const jitgemm_tensor_parallel_options* options,
                                              jitgemm_tensor_parallel** parallel) {
  return guarded([&] {
    given(parallel, "parallel");
    const auto& of = given(context, "context").context;
    const auto asked = options ? options_of(options) : jitgemm::TensorParallelOptions{};
    put_handle(parallel, std::unique_ptr<jitgemm_tensor_parallel>(
                             new jitgemm_tensor_parallel{of, jitgemm::TensorParallel(*of, communicator, asked)}));
  });
}

void jitgemm_tensor_parallel_destroy(jitgemm_tensor_parallel* parallel) { delete parallel; }

jitgemm_status jitgemm_tensor_parallel_gemm(jitgemm_tensor_parallel* parallel, const jitgemm_problem* problem,
                                            jitgemm_exchange exchange, const jitgemm_operands* operands,
                                            jitgemm_stream stream) {
  return guarded([&] {
    in(parallel).gemm(problem_of(problem), enumerator_of<jitgemm::Exchange>(exchange), operands_of(operands), stream);
  });
}

jitgemm_status jitgemm_tensor_parallel_prepare(jitgemm_tensor_parallel* parallel, const jitgemm_problem* problem,
                                               jitgemm_exchange exchange) {
  return guarded([&] { in(parallel).prepare(problem_of(problem), enumerator_of<jitgemm::Exchange>(exchange)); });
}

jitgemm_status jitgemm_tensor_parallel_plan(jitgemm_tensor_parallel* parallel, const jitgemm_problem* problem,
                                            jitgemm_exchange exchange, jitgemm_parallel_plan_info* info,
                                            jitgemm_plan** product) {
  return guarded([&] {
    const Out<jitgemm_parallel_plan_info> out(info);
    const jitgemm::ParallelPlan plan =
        in(parallel).plan(problem_of(problem), enumerator_of<jitgemm::Exchange>(exchange));
    if (product) {
      put_handle(product,
                 std::make_unique<jitgemm_plan>(parallel->context, plan.gemm.problem, plan.gemm.config, plan.gemm));
    }
    out.put(to_c(plan));
  });
}

jitgemm_status jitgemm_tensor_parallel_explain(jitgemm_tensor_parallel* parallel, const jitgemm_problem* problem,
                                               jitgemm_exchange exchange, char* buffer, std::size_t capacity,
                                               std::size_t* needed) {
  return guarded([&] {
    const TextOut out(buffer, capacity, needed);
    out.put_text(in(parallel).plan(problem_of(problem), enumerator_of<jitgemm::Exchange>(exchange)).explain());
  });
}

jitgemm_status jitgemm_tensor_parallel_check(jitgemm_tensor_parallel* parallel) {
  return guarded([&] { in(parallel).check(); });
}

void jitgemm_tensor_parallel_abort(jitgemm_tensor_parallel* parallel) {
  if (parallel) parallel->parallel.abort();
}
