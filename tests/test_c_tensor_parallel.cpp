// Products across ranks by way of C.
#include "c_context.hpp"
#include "catch.hpp"
#include "context_fixtures.hpp"
#include "fake_nccl.hpp"
#include "parallel_cases.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Ranks multiply by way of C", "[c][parallel][emulated]") {
  const TemporaryDirectory cache;
  CContext context(emulator_options(cache));
  FakeNccl nccl(2);
  ParallelCase product({.m = 8, .n = 16, .k = 32, .beta = 1}, Exchange::reduce_scatter_d, 2);
  const jitgemm_problem problem = c::to_c(product.problem());
  auto options = made_by<jitgemm_tensor_parallel_options>(jitgemm_tensor_parallel_options_init);
  options.overlap = JITGEMM_OVERLAP_NONE;
  jitgemm_tensor_parallel* parallel[2] = {};
  on_each_rank(2, [&](int rank) {
    throw_unless_success(jitgemm_tensor_parallel_create(context, nccl.communicator(rank), &options, &parallel[rank]));
    throw_unless_success(jitgemm_tensor_parallel_prepare(parallel[rank], &problem, JITGEMM_REDUCE_SCATTER_D));
    const jitgemm_operands operands = c::to_c(product.operands(rank));
    throw_unless_success(jitgemm_tensor_parallel_gemm(parallel[rank], &problem, JITGEMM_REDUCE_SCATTER_D, &operands,
                                                      reinterpret_cast<Stream>(std::uintptr_t(0x9000 + 16 * rank))));
    throw_unless_success(jitgemm_tensor_parallel_check(parallel[rank]));
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(product.violation(rank) == "");

  auto info = made_by<jitgemm_parallel_plan_info>(jitgemm_parallel_plan_info_init);
  jitgemm_plan* own = nullptr;
  REQUIRE(jitgemm_tensor_parallel_plan(parallel[1], &problem, JITGEMM_REDUCE_SCATTER_D, &info, &own) ==
          JITGEMM_STATUS_SUCCESS);
  CHECK(info.exchange == JITGEMM_REDUCE_SCATTER_D);
  CHECK((info.rank == 1 && info.ranks == 2 && info.overlapped == 0 && info.one_shot == 0));
  CHECK((info.received_bytes == 4 * 16 * 2 && info.staging_bytes == 8 * 16 * 2));
  CHECK((info.gemm_us > 0 && info.exchange_us > 0 && info.exposed_us == info.exchange_us));
  CHECK_THAT(CPlan(own).source(), ContainsSubstring("__global__"));
  CHECK_THAT(line_of([&](char* b, std::size_t c, std::size_t* n) {
               return jitgemm_tensor_parallel_explain(parallel[1], &problem, JITGEMM_REDUCE_SCATTER_D, b, c, n);
             }),
             ContainsSubstring("asked for by Overlap::none"));

  CHECK(jitgemm_tensor_parallel_gemm(parallel[1], &problem, 77, nullptr, nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  nccl.set_async_error(0, nccl::Result::remote_error);
  CHECK(jitgemm_tensor_parallel_check(parallel[0]) == JITGEMM_STATUS_PEER_LOST);
  CHECK_THAT(jitgemm_last_error_message(), ContainsSubstring("rank 0: ncclCommGetAsyncError"));
  jitgemm_tensor_parallel_abort(parallel[1]);
  CHECK(jitgemm_tensor_parallel_check(parallel[1]) == JITGEMM_STATUS_COMMUNICATOR_FAILED);
  for (jitgemm_tensor_parallel* one : parallel) jitgemm_tensor_parallel_destroy(one);
}

TEST_CASE("What C gives across ranks is looked at", "[c][parallel]") {
  const TemporaryDirectory cache;
  CContext context(emulator_options(cache));
  FakeNccl nccl(1);
  jitgemm_tensor_parallel* parallel = nullptr;
  CHECK(jitgemm_tensor_parallel_create(nullptr, nccl.communicator(0), nullptr, &parallel) ==
        JITGEMM_STATUS_INVALID_ARGUMENT);
  CHECK(jitgemm_tensor_parallel_create(context, nccl.communicator(0), nullptr, nullptr) ==
        JITGEMM_STATUS_INVALID_ARGUMENT);
  CHECK(jitgemm_tensor_parallel_create(context, nullptr, nullptr, &parallel) == JITGEMM_STATUS_COMMUNICATOR_FAILED);
  auto options = made_by<jitgemm_tensor_parallel_options>(jitgemm_tensor_parallel_options_init);
  CHECK((options.staging_bytes == SIZE_MAX && options.timeout_seconds == 60 && options.overlap == 0));
  options.reserved = 1;
  CHECK(jitgemm_tensor_parallel_create(context, nccl.communicator(0), &options, &parallel) ==
        JITGEMM_STATUS_INVALID_ARGUMENT);
  options.reserved = 0;
  options.overlap = 9;
  CHECK(jitgemm_tensor_parallel_create(context, nccl.communicator(0), &options, &parallel) ==
        JITGEMM_STATUS_INVALID_OPTION);
  CHECK(parallel == nullptr);
  CHECK(jitgemm_tensor_parallel_check(nullptr) == JITGEMM_STATUS_INVALID_ARGUMENT);
  const jitgemm_problem problem = c::to_c(Problem{.m = 8, .n = 8, .k = 8});
  CHECK(jitgemm_tensor_parallel_prepare(nullptr, &problem, 0) == JITGEMM_STATUS_INVALID_ARGUMENT);
  jitgemm_tensor_parallel_abort(nullptr);
  jitgemm_tensor_parallel_destroy(nullptr);
  CHECK(jitgemm_exchange_name(JITGEMM_ALL_GATHER_A) == std::string("all_gather_a"));
  CHECK(jitgemm_exchange_name(JITGEMM_REDUCE_SCATTER_D) == std::string("reduce_scatter_d"));
  CHECK(jitgemm_exchange_name(JITGEMM_ALL_REDUCE_D) == std::string("all_reduce_d"));
  CHECK(jitgemm_exchange_name(3) == std::string("unknown"));
}
