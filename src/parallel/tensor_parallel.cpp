#include "jitgemm/tensor_parallel.hpp"

#include <mutex>
#include <unordered_map>
#include <vector>

#include "context_internals.hpp"
#include "core/out_of_memory.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/version.hpp"
#include "parallel/agreement.hpp"
#include "parallel/calls_in_flight.hpp"
#include "parallel/communicator.hpp"
#include "parallel/rank_problem.hpp"
#include "parallel/unfused.hpp"
#include "util/hash.hpp"
#include "with_names.hpp"

namespace jitgemm {
namespace {

/// What is prepared, and so remembered, alike.
struct PreparedKey {
  NormalProblem shape;
  Exchange exchange;
  bool operator==(const PreparedKey& other) const { return exchange == other.exchange && equal(shape, other.shape); }
};
struct PreparedHash {
  std::size_t operator()(const PreparedKey& key) const { return hash_value(key.shape) + std::size_t(key.exchange); }
};

struct Prepared {
  ParallelPlan plan;
  std::unique_ptr<ParallelProduct> product;
};

}  // namespace

struct TensorParallel::Impl {
  Impl(Context& its_context, NcclCommunicator nccl_communicator, const TensorParallelOptions& its_options)
      : context(its_context),
        options(its_options),
        backend(ContextInternals::backend(its_context)),
        communicator(nccl::nccl(), nccl_communicator, backend, its_options.timeout_seconds),
        calls(backend) {}

  void gemm(const Problem& problem, Exchange exchange, const Operands& operands, Stream stream);
  void prepare(const Problem& problem, Exchange exchange);
  ParallelPlan plan(const Problem& problem, Exchange exchange);
  void check();

  Prepared* find(const RankProblem& problem);
  Prepared& prepare_together(const Problem& problem, Exchange exchange);
  AgreedChoice choose(const RankProblem& problem);
  /// How the ranks compute it: where overlapping is to be decided.
  std::unique_ptr<ParallelProduct> make_product(const RankProblem& problem, const KernelConfig& config);
  ParallelPlan plan_of(const RankProblem& problem, Plan gemm) const;
  void grow_staging(std::size_t bytes);

  Context& context;
  const TensorParallelOptions options;
  Backend& backend;
  Communicator communicator;
  std::mutex mutex;  // of all below; ranks' calls have one order, which threads do not mix
  CallsInFlight calls;
  DeviceMemory staging{nullptr, {nullptr}};
  std::size_t staging_bytes = 0, all_staging_bytes = 0;
  std::vector<DeviceMemory> outgrown;  // graphs may still use them
  std::unordered_map<PreparedKey, Prepared, PreparedHash> prepared;
};

Prepared* TensorParallel::Impl::find(const RankProblem& problem) {
  const auto found = prepared.find({prepared_shape(problem), problem.exchange});
  return found == prepared.end() ? nullptr : &found->second;
}

void TensorParallel::Impl::gemm(const Problem& problem, Exchange exchange, const Operands& operands, Stream stream) {
  const std::lock_guard lock(mutex);
  check();
  RankProblem ranked;
  const std::optional<Error> refused =
      failure_of([&] { ranked = rank_problem(problem, exchange, communicator.ranks()); });
  Prepared* ready = refused ? nullptr : find(ranked);
  if (!ready) {
    if (backend.capture_status(stream) == CaptureStatus::capturing) {
      throw Error(ErrorCode::not_capturable,
                  "this problem and exchange are not prepared, which stream capture forbids; call prepare() with them "
                  "on all ranks before the capture");
    }
    ready = &prepare_together(problem, exchange);
  }
  const bool waits = ranked.communicates;
  if (waits) calls.before(stream);
  try {
    ready->product->enqueue(ranked, operands, staging.get(), stream);
  } catch (...) {
    if (waits) calls.after(stream);  // some of it may be on the stream
    throw;
  }
  if (waits) calls.after(stream);
}

void TensorParallel::Impl::prepare(const Problem& problem, Exchange exchange) {
  const std::lock_guard lock(mutex);
  check();
  prepare_together(problem, exchange);
}

Prepared& TensorParallel::Impl::prepare_together(const Problem& problem, Exchange exchange) {
  RankProblem ranked;
  std::string digest;
  const std::optional<Error> refused = failure_of([&] {
    ranked = rank_problem(problem, exchange, communicator.ranks());
    digest = digest_of(to_string(prepared_shape(ranked)) + std::string(to_string(exchange)) + JITGEMM_VERSION +
                       backend.device().architecture());
  });
  agree(communicator, digest, refused);
  if (Prepared* const ready = find(ranked)) return *ready;
  const AgreedChoice choice = choose_on_first(communicator, [&] { return choose(ranked); });
  Prepared made;
  const std::optional<Error> unready = failure_of([&] {
    made.product = make_product(ranked, choice.config);
    grow_staging(made.product->staging_bytes());
    Plan gemm = context.plan(ranked.product, choice.config);
    gemm.source = choice.source;
    gemm.why = communicator.rank() == 0 ? choice.why : "rank 0's: " + choice.why;
    gemm.measured_us = choice.measured_us;
    made.plan = plan_of(ranked, std::move(gemm));
  });
  agree(communicator, digest, unready);
  return prepared.insert_or_assign({prepared_shape(ranked), exchange}, std::move(made)).first->second;
}

AgreedChoice TensorParallel::Impl::choose(const RankProblem& problem) {
  if (!is_empty(problem.product)) context.workspace_size(problem.product);  // measures first where tuning is on
  const Plan plan = context.plan(problem.product);
  return {plan.config, plan.source, plan.why, plan.measured_us};
}

std::unique_ptr<ParallelProduct> TensorParallel::Impl::make_product(const RankProblem& problem,
                                                                    const KernelConfig& config) {
  return std::make_unique<UnfusedProduct>(context, communicator, problem, config);
}

void TensorParallel::Impl::grow_staging(std::size_t bytes) {
  if (bytes <= staging_bytes) return;
  const std::size_t kept = calls.any_captured() ? all_staging_bytes : all_staging_bytes - staging_bytes;
  if (bytes > options.staging_bytes || kept > options.staging_bytes - bytes) {
    throw Error(ErrorCode::workspace_too_small,
                "this product needs " + std::to_string(bytes) + " bytes of staging" +
                    (kept > 0 ? " beside " + std::to_string(kept) + " that captured graphs use" : "") +
                    ", and TensorParallelOptions::staging_bytes is " + std::to_string(options.staging_bytes) +
                    "; give more on all ranks");
  }
  if (calls.any_captured())
    outgrown.push_back(std::move(staging));
  else
    staging.reset();  // waits for calls that use it
  staging_bytes = 0;
  all_staging_bytes = kept;
  staging = allocate_memory(backend, bytes);
  staging_bytes = bytes;
  all_staging_bytes += bytes;
}

ParallelPlan TensorParallel::Impl::plan_of(const RankProblem& problem, Plan gemm) const {
  ParallelPlan plan;
  plan.exchange = problem.exchange;
  plan.why = !problem.communicates              ? "nothing is exchanged"
             : options.overlap == Overlap::none ? "asked for by Overlap::none"
                                                : "this product cannot be overlapped";
  plan.rank = communicator.rank();
  plan.ranks = communicator.ranks();
  plan.received_bytes = received_bytes(problem);
  plan.staging_bytes = UnfusedProduct::staging_bytes(problem);
  plan.gemm_us = gemm.measured_us > 0 ? gemm.measured_us : gemm.predicted.us;
  plan.exposed_us = plan.exchange_us = expected_exchange_us(problem);
  plan.gemm = std::move(gemm);
  return plan;
}

ParallelPlan TensorParallel::Impl::plan(const Problem& problem, Exchange exchange) {
  const RankProblem ranked = rank_problem(problem, exchange, communicator.ranks());
  {
    const std::lock_guard lock(mutex);
    if (const Prepared* const ready = find(ranked)) return ready->plan;
  }
  return plan_of(ranked, context.plan(ranked.product));
}

void TensorParallel::Impl::check() {
  communicator.check();
  const double seconds = communicator.timeout_seconds();
  if (seconds > 0 && calls.overdue(seconds)) {
    communicator.fail(Error(ErrorCode::peer_lost, "rank " + std::to_string(communicator.rank()) +
                                                      ": a call has not ended in " + std::to_string(seconds) +
                                                      " s, so " + communicator.other_ranks() +
                                                      " does not answer; end all ranks and begin again"));
  }
}

TensorParallel::TensorParallel(Context& context, NcclCommunicator communicator, const TensorParallelOptions& options)
    : impl_(with_memory_errors([&] { return std::make_unique<Impl>(context, communicator, options); })) {}
TensorParallel::~TensorParallel() = default;
TensorParallel::TensorParallel(TensorParallel&&) noexcept = default;
TensorParallel& TensorParallel::operator=(TensorParallel&&) noexcept = default;

TensorParallel::Impl& TensorParallel::impl() const {
  if (!impl_) {
    with_memory_errors([] {
      throw Error(ErrorCode::communicator_failed,
                  "this TensorParallel was moved from; use the one that it was moved to");
    });
  }
  return *impl_;
}

void TensorParallel::gemm(const Problem& problem, Exchange exchange, const Operands& operands, Stream stream) {
  with_names(problem, nullptr, [&] { impl().gemm(problem, exchange, operands, stream); });
}

void TensorParallel::prepare(const Problem& problem, Exchange exchange) {
  with_names(problem, nullptr, [&] { impl().prepare(problem, exchange); });
}

ParallelPlan TensorParallel::plan(const Problem& problem, Exchange exchange) {
  return with_names(problem, nullptr, [&] { return impl().plan(problem, exchange); });
}

void TensorParallel::check() {
  with_memory_errors([&] { impl().check(); });
}

void TensorParallel::abort() noexcept {
  if (impl_) impl_->communicator.abort();
}

int TensorParallel::rank() const { return impl().communicator.rank(); }
int TensorParallel::ranks() const { return impl().communicator.ranks(); }

}  // namespace jitgemm
