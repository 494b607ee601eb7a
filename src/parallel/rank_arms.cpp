#include "parallel/rank_arms.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "context_internals.hpp"
#include "core/sharded_problem.hpp"
#include "jitgemm/error.hpp"
#include "parallel/left_behind.hpp"
#include "parallel/overlapped_product.hpp"
#include "parallel/unfused.hpp"

namespace jitgemm {

ProductArms::ProductArms(ProductParts parts, const RankProblem& problem, const RankTask& task)
    : parts_(std::move(parts)),
      backend_(ContextInternals::backend(parts_.context)),
      relaxed_(backend_.relax_capture()),
      problem_(problem),
      task_(task) {}

ProductArms::~ProductArms() {
  if (!timer_ || !parts_.communicator.has_failed()) return;
  bool idle = false;
  try {
    idle = backend_.is_idle(timer_->stream());
  } catch (...) {  // then nothing runs on the device any more
    idle = true;
  }
  if (!idle) leave_behind(memory_.release());
}

void ProductArms::allocate() {
  timer_.emplace(backend_);
  // Of the whole problem, of which a rank has no more.
  memory_ = std::make_unique<Memory>(backend_, problem_.asked, task_.candidates.size());
  KernelStore& store = ContextInternals::store(parts_.context);
  kernels_.emplace(backend_, task_.candidates.size(), [this, &store](std::size_t i) {
    const auto& [method, config] = task_.candidates[i];
    return get_kernels(store, problem_of(problem_, method), config, backend_.device());
  });
}

void ProductArms::compile(std::size_t i) {
  const auto& [method, config] = task_.candidates[i];
  Arm& arm = memory_->arms[i];
  (*kernels_)[i].get();
  switch (method) {
    case ParallelMethod::unfused:
      arm.product = std::make_unique<UnfusedProduct>(parts_.context, parts_.communicator, problem_, config);
      break;
    case ParallelMethod::overlapped:
      if (const std::size_t needed =
              Overlapped::staging_bytes(problem_.ranks, problem_.asked, problem_.exchange, config);
          needed > parts_.staging_bytes)
        throw Error(ErrorCode::workspace_too_small, "it needs " + std::to_string(needed) + " bytes of staging");
      arm.prepared = parts_.overlapped.prepare(problem_.asked, problem_.exchange, config);
      return;
    case ParallelMethod::one_shot:
      throw Error(ErrorCode::internal, "an all-reduce in one step is chosen without measuring; please report it");
  }
  const std::size_t bytes = arm.product->staging_bytes();
  if (bytes > parts_.staging_bytes)
    throw Error(ErrorCode::workspace_too_small, "it needs " + std::to_string(bytes) + " bytes of staging");
  arm.staging = allocate_memory(backend_, bytes);
}

void ProductArms::stage(std::size_t i) {
  Arm& arm = memory_->arms[i];
  if (!arm.prepared) return;
  if (!memory_->largest) stage_largest();
  parts_.overlapped.stage(*arm.prepared);
  arm.product = std::make_unique<OverlappedProduct>(parts_.overlapped, *std::exchange(arm.prepared, std::nullopt));
}

void ProductArms::stage_largest() {
  std::size_t most = 0;
  Overlapped::Prepared largest;
  largest.problem = problem_of(problem_, ParallelMethod::overlapped);
  for (const auto& [method, config] : task_.candidates) {
    if (method != ParallelMethod::overlapped) continue;
    const std::size_t bytes = Overlapped::staging_bytes(problem_.ranks, problem_.asked, problem_.exchange, config);
    if (bytes > std::exchange(most, std::max(most, bytes))) largest.ready.config = config;
  }
  parts_.overlapped.stage(largest);
  memory_->largest = std::move(largest);
}

void ProductArms::enqueue(Arm& arm, int set, Stream stream) {
  arm.product->enqueue(problem_, memory_->scratch.operands(set), arm.staging.get(), stream);
}

void ProductArms::time(FunctionRef<void()> work) {
  const Stream stream = timer_->stream();
  parts_.calls.wait(parts_.check);     // what the caller's streams do before takes its time
  parts_.calls.before(stream, false);  // the wait below has the time-out
  try {
    work();
  } catch (...) {
    parts_.calls.after(stream);  // some of it may be on the stream
    throw;
  }
  parts_.calls.after(stream);
  parts_.communicator.wait_until("a measurement", [&] {
    parts_.check();
    return timer_->is_over();
  });
  parts_.check();  // what has failed may have ended the wait
}

void ProductArms::run(std::size_t i) {
  time([&] { timer_->time([&] { enqueue(memory_->arms[i], next_set(), timer_->stream()); }); });
}

void ProductArms::prepare(std::size_t i, int calls) {
  Arm& arm = memory_->arms[i];
  arm.calls = calls;
  const int first_set = next_set();
  const auto all = [this, &arm, calls, first_set](Stream stream) {
    for (int call = 0; call < calls; ++call) enqueue(arm, (first_set + call) % memory_->scratch.sets(), stream);
  };
  // An older NCCL's calls are put on the stream each time.
  const bool captures = parts_.communicator.api().version >= nccl::first_with_graphs;
  arm.recording = captures ? backend_.record(all) : backend_.Backend::record(all);
  set_ = (first_set + calls - 1) % memory_->scratch.sets();
}

double ProductArms::sample(std::size_t i) {
  Arm& arm = memory_->arms[i];
  const Stream stream = timer_->stream();
  time([&] {
    if (!task_.emulated) arm.recording->replay(stream);
    timer_->time([&] { arm.recording->replay(stream); });
  });
  return timer_->us() / arm.calls;
}

}  // namespace jitgemm
