#include "jitgemm/tensor_parallel.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "context_internals.hpp"
#include "core/out_of_memory.hpp"
#include "core/rank_problem.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/version.hpp"
#include "parallel/agreement.hpp"
#include "parallel/calls_in_flight.hpp"
#include "parallel/communicator.hpp"
#include "parallel/connections.hpp"
#include "parallel/left_behind.hpp"
#include "parallel/one_shot_product.hpp"
#include "parallel/overlapped_product.hpp"
#include "parallel/parallel_plan.hpp"
#include "parallel/rank_arms.hpp"
#include "parallel/rank_choice.hpp"
#include "parallel/unfused.hpp"
#include "util/hash.hpp"
#include "util/log.hpp"
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

/// Rows of a shard, for what is not measured: with fewer, what overlapping costs - a kernel more, waits, a tile that is
/// told of late - is as much as NCCL's collective beside the product, on two H200s.
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
    try {  // what the caller's streams do before the calls takes its time, which no rank is late by
      if (!communicator.has_failed()) calls.wait([this] { check(); });
    } catch (const std::exception& error) {
      logger().warn("a TensorParallel ends before its calls, whose memory stays: {}", error.what());
    }
    if (!communicator.has_failed() || !calls.any_left()) return;
    for (DeviceMemory& memory : outgrown) leave_behind(memory.release());
    connections.leave_all_behind();
    leave_behind(staging.release());
  }

  void gemm(const Problem& problem, Exchange exchange, const Operands& operands, Stream stream);
  void prepare(const Problem& problem, Exchange exchange);
  ParallelPlan plan(const Problem& problem, Exchange exchange);
  void check();

  Prepared* find(const RankProblem& problem);
  Prepared& prepare_together(const Problem& problem, Exchange exchange);
  /// What is chosen without measuring, and why. `may_overlap`: by what, whether it is chosen or not.
  ParallelMethod method_of(const RankProblem& problem, std::optional<RankedConfig>& may_overlap,
                           std::string& why) const;
  /// From what this rank knows, without measuring.
  AgreedChoice preview(const RankProblem& problem, bool& may_overlap);
  /// As rank 0 does for all. `task`: gets what the ranks are to measure before.
  AgreedChoice choose(const RankProblem& problem, RankTask& task);
  /// Collective. What comes of rank 0's task.
  AgreedChoice measure(const RankProblem& problem, const AgreedChoice& first, const RankTask& task);
  Prepared make_unfused(const RankProblem& problem, const AgreedChoice& choice, const std::string& digest);
  Prepared make_overlapped(const RankProblem& problem, const AgreedChoice& choice, const std::string& digest);
  Prepared make_one_shot(const RankProblem& problem, const AgreedChoice& choice, const std::string& digest);
  void grow_staging(std::size_t bytes);
  /// Throws Error{workspace_too_small} if this rank does not allow what the choice needs for what comes.
  void check_staging(const RankProblem& problem, const AgreedChoice& choice) const;

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
  if (waits) calls.before(stream, !ready->product->ends_its_waits());
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
  RankTask task;
  const auto choose_together = [&] { return choose_on_first(communicator, [&] { return choose(ranked, task); }); };
  AgreedChoice choice = choose_together();
  // Another rank may allow less memory than rank 0, which has chosen.
  const auto check_choice = [&] {
    if (choice.method != ParallelMethod::unfused)
      agree(communicator, digest, failure_of([&] { check_staging(ranked, choice); }));
  };
  if (!choice.to_measure) check_choice();
  const ParallelMethod needed = choice.to_measure ? ParallelMethod::overlapped : choice.method;
  if (!connections.make(needed, ranked, digest)) choice = choose_together();
  if (choice.to_measure) {
    choice = measure(ranked, choice, task);
    check_choice();
  }
  if (communicator.rank() != 0) choice.why = "rank 0's: " + choice.why;
  Prepared made = choice.method == ParallelMethod::overlapped ? make_overlapped(ranked, choice, digest)
                  : choice.method == ParallelMethod::one_shot ? make_one_shot(ranked, choice, digest)
                                                              : make_unfused(ranked, choice, digest);
  connections.drop_unused_memory();
  return prepared.insert_or_assign({prepared_shape(ranked), exchange}, std::move(made)).first->second;
}

ParallelMethod TensorParallel::Impl::method_of(const RankProblem& problem, std::optional<RankedConfig>& may_overlap,
                                               std::string& why) const {
  why = !problem.communicates              ? "nothing is exchanged"
        : options.overlap == Overlap::none ? "asked for by Overlap::none"
                                           : connections.why_none();
  if (!why.empty()) return ParallelMethod::unfused;
  if (problem.exchange == Exchange::all_reduce_d)
    return OneShot::is_chosen(problem, options.staging_bytes, why) ? ParallelMethod::one_shot : ParallelMethod::unfused;
  may_overlap = Overlapped::choose(context, problem.ranks, problem.asked, problem.exchange, why);
  if (!may_overlap) return ParallelMethod::unfused;
  if (Overlapped::staging_bytes(problem.ranks, problem.asked, problem.exchange, may_overlap->config) >
      options.staging_bytes) {
    may_overlap.reset();
    why = "TensorParallelOptions::staging_bytes is too small for it";
    return ParallelMethod::unfused;
  }
  const std::int64_t rows = problem.asked.m / problem.ranks;
  if (rows < least_rows) {
    why = "shards of " + std::to_string(rows) + " rows are too short to gain by it: " + std::to_string(least_rows) +
          " at least";
    return ParallelMethod::unfused;
  }
  why = "communication under the product is expected to be faster";
  return ParallelMethod::overlapped;
}

AgreedChoice TensorParallel::Impl::preview(const RankProblem& problem, bool& may_overlap) {
  std::optional<RankedConfig> overlapped;
  std::string why;
  const ParallelMethod method = method_of(problem, overlapped, why);
  may_overlap = overlapped.has_value();
  const auto recorded = may_overlap ? recorded_choice(context, problem, options.staging_bytes) : std::nullopt;
  if (recorded) return *recorded;
  if (method == ParallelMethod::overlapped) {
    return {.config = overlapped->config, .why = "the cost model's first choice", .method = method, .why_method = why};
  }
  const Plan plan = context.plan(problem.product);
  return {.config = plan.config,
          .source = plan.source,
          .why = plan.why,
          .measured_us = plan.measured_us,
          .method = method,
          .why_method = why};
}

AgreedChoice TensorParallel::Impl::choose(const RankProblem& problem, RankTask& task) {
  bool may_overlap = false;
  AgreedChoice choice = preview(problem, may_overlap);
  if (choice.method != ParallelMethod::overlapped && choice.together_us == 0 && !is_empty(problem.product)) {
    context.workspace_size(problem.product);  // measures first where tuning is on
    choice = preview(problem, may_overlap);
  }
  task = may_overlap ? task_for(context, problem, choice, options.staging_bytes) : RankTask{};
  choice.to_measure = !task.candidates.empty();
  return choice;
}

AgreedChoice TensorParallel::Impl::measure(const RankProblem& problem, const AgreedChoice& first,
                                           const RankTask& first_ranks_task) {
  const RankTask task = task_of_first(communicator, first_ranks_task);
  const RankProblem measured = measured_problem(problem, task.bucket_m);
  std::optional<RankTimes> times;
  {
    ProductArms arms(
        {context, communicator, calls, connections.overlapped(), options.staging_bytes, [this] { check(); }}, measured,
        task);
    times = measure_together(communicator, arms, task);
  }
  return choose_on_first(communicator, [&] {
    return times ? measured_choice(context, problem, task, *times, first, options.staging_bytes) : first;
  });
}

Prepared TensorParallel::Impl::make_unfused(const RankProblem& problem, const AgreedChoice& choice,
                                            const std::string& digest) {
  Prepared made;
  agree(communicator, digest, failure_of([&] {
          made.product = std::make_unique<UnfusedProduct>(context, communicator, problem, choice.config);
          grow_staging(made.product->staging_bytes());
          made.plan = plan_of(problem, choice, context.plan(problem.product, choice.config), communicator.rank());
        }));
  return made;
}

Prepared TensorParallel::Impl::make_overlapped(const RankProblem& problem, const AgreedChoice& choice,
                                               const std::string& digest) {
  Prepared made;
  std::unique_ptr<OverlappedProduct> product;
  agree(communicator, digest, failure_of([&] {
          Overlapped& overlapped = connections.overlapped();
          product = std::make_unique<OverlappedProduct>(
              overlapped, overlapped.prepare(problem.asked, problem.exchange, choice.config));
          made.plan = plan_of(problem, choice, context.plan(problem.product), communicator.rank());
        }));
  product->stage();
  made.product = std::move(product);
  return made;
}

Prepared TensorParallel::Impl::make_one_shot(const RankProblem& problem, const AgreedChoice& choice,
                                             const std::string& digest) {
  Prepared made;
  std::unique_ptr<OneShotProduct> product;
  agree(communicator, digest, failure_of([&] {
          product = std::make_unique<OneShotProduct>(context, connections.one_shot(), problem, choice.config);
          grow_staging(product->staging_bytes());
          made.plan = plan_of(problem, choice, context.plan(problem.product, choice.config), communicator.rank());
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

void TensorParallel::Impl::check_staging(const RankProblem& problem, const AgreedChoice& choice) const {
  const std::size_t bytes =
      choice.method == ParallelMethod::overlapped
          ? Overlapped::staging_bytes(problem.ranks, problem.asked, problem.exchange, choice.config)
          : OneShot::memory_bytes(problem) + UnfusedProduct::staging_bytes(problem);
  if (bytes > options.staging_bytes) {
    throw Error(ErrorCode::workspace_too_small, "this product needs " + std::to_string(bytes) +
                                                    " bytes of staging, and TensorParallelOptions::staging_bytes is " +
                                                    std::to_string(options.staging_bytes) +
                                                    "; give the same on all ranks");
  }
}

ParallelPlan TensorParallel::Impl::plan(const Problem& problem, Exchange exchange) {
  const RankProblem ranked = rank_problem(problem, exchange, communicator.ranks());
  const std::lock_guard lock(mutex);
  if (const Prepared* const ready = find(ranked)) return ready->plan;
  bool may_overlap = false;
  return plan_of(ranked, preview(ranked, may_overlap), context.plan(ranked.product), communicator.rank());
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
