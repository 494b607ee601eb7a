#include "jitgemm/tensor_parallel.hpp"

#include <algorithm>
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
#include "parallel/connections.hpp"
#include "parallel/one_shot_product.hpp"
#include "parallel/overlapped_product.hpp"
#include "parallel/rank_problem.hpp"
#include "parallel/unfused.hpp"
#include "util/hash.hpp"
#include "util/number_text.hpp"
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

/// Rows of a shard: with fewer, what overlapping costs - a kernel more, waits, a tile that is told of late - is as much
/// as NCCL's collective beside the product, on two H200s.
constexpr std::int64_t least_rows = 512;

struct Prepared {
  ParallelPlan plan;
  std::unique_ptr<ParallelProduct> product;
};

const TensorParallelOptions& checked(const TensorParallelOptions& options) {
  if (options.overlap != Overlap::automatic && options.overlap != Overlap::none)
    throw Error(ErrorCode::invalid_option, "there is no such overlap; use an enumerator of Overlap");
  if (!(options.timeout_seconds >= 0)) {
    throw Error(ErrorCode::invalid_option,
                "timeout_seconds=" + general_text(options.timeout_seconds, 6) + " is no time; give 0 to wait for ever");
  }
  return options;
}

}  // namespace

struct TensorParallel::Impl {
  Impl(Context& its_context, NcclCommunicator nccl_communicator, const TensorParallelOptions& its_options)
      : context(its_context),
        options(its_options),
        backend(ContextInternals::backend(its_context)),
        communicator(nccl::nccl(), nccl_communicator, backend, checked(its_options).timeout_seconds),
        calls(backend) {}

  ~Impl() {
    if (!communicator.has_failed() || !calls.any_left()) return;
    for (DeviceMemory& memory : outgrown) static_cast<void>(memory.release());
    static_cast<void>(staging.release());  // to free it would wait for a rank that does not come
  }

  void gemm(const Problem& problem, Exchange exchange, const Operands& operands, Stream stream);
  void prepare(const Problem& problem, Exchange exchange);
  ParallelPlan plan(const Problem& problem, Exchange exchange);
  void check();

  Prepared* find(const RankProblem& problem);
  Prepared& prepare_together(const Problem& problem, Exchange exchange);
  /// As rank 0 does for all.
  AgreedChoice choose(const RankProblem& problem);
  /// As far as that can be known before; `chosen` where it is overlapped.
  Communication communication_of(const RankProblem& problem, std::optional<RankedConfig>& chosen,
                                 std::string& why) const;
  /// Empty, or why communication does not run under the product.
  std::string why_not_overlapped(const RankProblem& problem, std::optional<RankedConfig>& chosen) const;
  Prepared make_unfused(const RankProblem& problem, const AgreedChoice& choice, const std::string& digest);
  Prepared make_overlapped(const RankProblem& problem, const AgreedChoice& choice, const std::string& digest);
  Prepared make_one_shot(const RankProblem& problem, const AgreedChoice& choice, const std::string& digest);
  Plan plan_of_gemm(Plan plan, const AgreedChoice& choice) const;
  ParallelPlan plan_of(const RankProblem& problem, Plan gemm, Communication communication,
                       const std::string& why) const;
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
  Connections connections{context, communicator};
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
  AgreedChoice choice = choose_on_first(communicator, [&] { return choose(ranked); });
  if (!connections.make(choice.communication, ranked, digest))
    choice = choose_on_first(communicator, [&] { return choose(ranked); });
  Prepared made = choice.communication == Communication::overlapped ? make_overlapped(ranked, choice, digest)
                  : choice.communication == Communication::one_shot ? make_one_shot(ranked, choice, digest)
                                                                    : make_unfused(ranked, choice, digest);
  return prepared.insert_or_assign({prepared_shape(ranked), exchange}, std::move(made)).first->second;
}

Communication TensorParallel::Impl::communication_of(const RankProblem& problem, std::optional<RankedConfig>& chosen,
                                                     std::string& why) const {
  why = !problem.communicates              ? "nothing is exchanged"
        : options.overlap == Overlap::none ? "asked for by Overlap::none"
                                           : connections.why_none();
  if (!why.empty()) return Communication::nccl;
  if (problem.exchange == Exchange::all_reduce_d)
    return OneShot::is_chosen(problem, options.staging_bytes, why) ? Communication::one_shot : Communication::nccl;
  why = why_not_overlapped(problem, chosen);
  if (!why.empty()) return Communication::nccl;
  why = "communication under the product is expected to be faster";
  return Communication::overlapped;
}

std::string TensorParallel::Impl::why_not_overlapped(const RankProblem& problem,
                                                     std::optional<RankedConfig>& chosen) const {
  std::string why_not;
  chosen = Overlapped::choose(context, problem.ranks, problem.asked, problem.exchange, why_not);
  if (!chosen) return why_not;
  const std::int64_t rows = problem.asked.m / problem.ranks;
  if (rows < least_rows)
    return "shards of " + std::to_string(rows) + " rows are too short to gain by it: " + std::to_string(least_rows) +
           " at least";
  if (Overlapped::staging_bytes(problem.ranks, problem.asked, problem.exchange, chosen->config) > options.staging_bytes)
    return "TensorParallelOptions::staging_bytes is too small for it";
  return {};
}

AgreedChoice TensorParallel::Impl::choose(const RankProblem& problem) {
  std::optional<RankedConfig> chosen;
  std::string why;
  const Communication communication = communication_of(problem, chosen, why);
  if (communication == Communication::overlapped) {
    return {.config = chosen->config,
            .source = PlanSource::model,
            .why = "the cost model's first choice",
            .measured_us = 0,
            .communication = communication,
            .why_communication = why};
  }
  if (!is_empty(problem.product)) context.workspace_size(problem.product);  // measures first where tuning is on
  const Plan plan = context.plan(problem.product);
  return {.config = plan.config,
          .source = plan.source,
          .why = plan.why,
          .measured_us = plan.measured_us,
          .communication = communication,
          .why_communication = why};
}

Plan TensorParallel::Impl::plan_of_gemm(Plan plan, const AgreedChoice& choice) const {
  plan.source = choice.source;
  plan.why = communicator.rank() == 0 ? choice.why : "rank 0's: " + choice.why;
  plan.measured_us = choice.measured_us;
  return plan;
}

Prepared TensorParallel::Impl::make_unfused(const RankProblem& problem, const AgreedChoice& choice,
                                            const std::string& digest) {
  Prepared made;
  agree(communicator, digest, failure_of([&] {
          made.product = std::make_unique<UnfusedProduct>(context, communicator, problem, choice.config);
          grow_staging(made.product->staging_bytes());
          made.plan = plan_of(problem, plan_of_gemm(context.plan(problem.product, choice.config), choice),
                              choice.communication, choice.why_communication);
        }));
  return made;
}

Prepared TensorParallel::Impl::make_overlapped(const RankProblem& problem, const AgreedChoice& choice,
                                               const std::string& digest) {
  Prepared made;
  Overlapped::Prepared product;
  agree(communicator, digest, failure_of([&] {
          product = connections.overlapped().prepare(problem.asked, problem.exchange, choice.config);
          Plan gemm = context.plan(problem.product);
          gemm.config = choice.config;
          made.plan =
              plan_of(problem, plan_of_gemm(std::move(gemm), choice), choice.communication, choice.why_communication);
          made.plan.staging_bytes =
              Overlapped::staging_bytes(problem.ranks, problem.asked, problem.exchange, choice.config);
          made.plan.exposed_us = std::max(0.0, made.plan.exchange_us - made.plan.gemm_us);
        }));
  connections.overlapped().stage(product);
  made.product = std::make_unique<OverlappedProduct>(connections.overlapped(), std::move(product));
  return made;
}

Prepared TensorParallel::Impl::make_one_shot(const RankProblem& problem, const AgreedChoice& choice,
                                             const std::string& digest) {
  Prepared made;
  std::unique_ptr<OneShotProduct> product;
  agree(communicator, digest, failure_of([&] {
          product = std::make_unique<OneShotProduct>(context, connections.one_shot(), problem, choice.config);
          grow_staging(product->staging_bytes());
          made.plan = plan_of(problem, plan_of_gemm(context.plan(problem.product, choice.config), choice),
                              choice.communication, choice.why_communication);
        }));
  product->stage();
  made.product = std::move(product);
  return made;
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

ParallelPlan TensorParallel::Impl::plan_of(const RankProblem& problem, Plan gemm, Communication communication,
                                           const std::string& why) const {
  const bool in_one_shot = communication == Communication::one_shot;
  ParallelPlan plan;
  plan.exchange = problem.exchange;
  plan.overlapped = communication == Communication::overlapped;
  plan.one_shot = in_one_shot;
  plan.why = why;
  plan.rank = communicator.rank();
  plan.ranks = communicator.ranks();
  plan.received_bytes = in_one_shot ? OneShot::received_bytes(problem) : received_bytes(problem);
  plan.staging_bytes = UnfusedProduct::staging_bytes(problem) + (in_one_shot ? OneShot::memory_bytes(problem) : 0);
  plan.gemm_us = gemm.measured_us > 0 ? gemm.measured_us : gemm.predicted.us;
  plan.exposed_us = plan.exchange_us = in_one_shot ? OneShot::expected_us(problem) : expected_exchange_us(problem);
  plan.gemm = std::move(gemm);
  return plan;
}

ParallelPlan TensorParallel::Impl::plan(const Problem& problem, Exchange exchange) {
  const RankProblem ranked = rank_problem(problem, exchange, communicator.ranks());
  const std::lock_guard lock(mutex);
  if (const Prepared* const ready = find(ranked)) return ready->plan;
  std::optional<RankedConfig> chosen;
  std::string why;
  const Communication communication = communication_of(ranked, chosen, why);
  ParallelPlan plan = plan_of(ranked, context.plan(ranked.product), communication, why);
  if (chosen && plan.overlapped) plan.gemm.config = chosen->config;
  return plan;
}

void TensorParallel::Impl::check() {
  communicator.check();
  connections.check();
  const double seconds = communicator.timeout_seconds();
  if (seconds > 0 && calls.overdue(seconds)) {
    communicator.fail(Error(ErrorCode::peer_lost, "rank " + std::to_string(communicator.rank()) +
                                                      ": a call has not ended in " + general_text(seconds, 6) +
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
  if (!impl_) return;
  impl_->communicator.abort();
  impl_->connections.abort();
}

int TensorParallel::rank() const { return impl().communicator.rank(); }
int TensorParallel::ranks() const { return impl().communicator.ranks(); }

}  // namespace jitgemm
