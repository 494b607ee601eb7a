#include "parallel/one_shot.hpp"

#include <algorithm>
#include <utility>

#include "chooser.hpp"
#include "core/type_rules.hpp"
#include "jit/arguments.hpp"
#include "jit/source_generator.hpp"
#include "parallel/unfused.hpp"
#include "util/integers.hpp"
#include "util/number_text.hpp"

namespace jitgemm {
namespace {

// A kernel that starts early, stores across NVLink and polls; what a rank's links send. Two H200s take 3.8 us for 16 KB
// of sums and 16 for 2 MB, which travel as twice the bytes (tools/results/NOTES.md, 43).
constexpr double latency_us = 3, bytes_per_us = 350e3;

constexpr int warp = 32;

/// Neighbours of a row that a thread has at a time: the most of which every row of every operand begins and ends with
/// whole ones.
int elements_of(const NormalProblem& p) {
  const auto holds = [](const Matrix& matrix, int elements) {
    return std::size_t(matrix.alignment) >= std::size_t(elements) * size_of(matrix.type);
  };
  for (const int elements : {4, 2})
    if (elements * size_of(type_of_c(p)) <= 8 && holds(p.d, elements) && (!reads_c(p) || holds(p.c, elements)))
      return elements;
  return 1;
}

std::int64_t items_of(const NormalProblem& p) { return p.m * p.n / elements_of(p); }

/// Of one rank's sums, as they travel.
std::size_t sent_bytes(const NormalProblem& p) {
  const int words = device::one_shot_words(elements_of(p) * int(size_of(type_of_c(p))));
  return std::size_t(items_of(p) * words) * sizeof(std::uint64_t);
}

}  // namespace

/// Of the calls so far; zeros at first.
struct OneShot::Epoch {
  unsigned epoch, tickets;
};

bool OneShot::is_chosen(const RankProblem& problem, std::size_t most_staging_bytes, std::string& why) {
  if (problem.ranks > device::most_ranks) {
    why = "more than " + std::to_string(device::most_ranks) + " ranks";
    return false;
  }
  const std::size_t staging = UnfusedProduct::staging_bytes(problem), memory = memory_bytes(problem);
  if (staging > most_staging_bytes || memory > most_staging_bytes - staging) {
    why = "TensorParallelOptions::staging_bytes is too small to add up in one shot";
    return false;
  }
  const double us = expected_us(problem), nccl_us = expected_exchange_us(problem);
  why = "sums are expected to take " + general_text(us, 3) + " us in one shot and " + general_text(nccl_us, 3) +
        " us by NCCL";
  return us < nccl_us;
}

double OneShot::expected_us(const RankProblem& problem) {
  return latency_us + double(received_bytes(problem)) / bytes_per_us;
}

std::size_t OneShot::received_bytes(const RankProblem& problem) {
  return std::size_t(problem.ranks - 1) * sent_bytes(problem.finish);
}

std::size_t OneShot::memory_bytes(const RankProblem& problem) {
  return 2 * std::size_t(problem.ranks) * sent_bytes(problem.finish);
}

OneShot::OneShot(Context& context, int rank, int ranks, AllGatherBytes all_gather, double timeout_seconds)
    : context_(context),
      backend_(ContextInternals::backend(context)),
      rank_(rank),
      ranks_(ranks),
      all_gather_(std::move(all_gather)),
      patience_(backend_, timeout_seconds),
      epoch_(allocate_memory(backend_, sizeof(Epoch))) {
  backend_.zero(epoch_.get(), sizeof(Epoch));
}

OneShot::Prepared OneShot::prepare(const RankProblem& problem) const {
  const KernelSource source = generate_one_shot(problem.finish, elements_of(problem.finish), backend_.device());
  return {.kernel = ContextInternals::store(context_).get(source, 0),
          .items = items_of(problem.finish),
          .memory_bytes = memory_bytes(problem),
          .received = nullptr};
}

void OneShot::grow(std::size_t memory_bytes) {
  if (received_.empty() || received_.back()->bytes() < memory_bytes)
    received_.push_back(std::make_shared<SymmetricMemory>(backend_, rank_, ranks_, all_gather_, memory_bytes));
}

void OneShot::stage(Prepared& prepared) {
  const std::lock_guard lock(mutex_);
  grow(prepared.memory_bytes);
  prepared.received = received_.back();
}

void OneShot::count_from(unsigned calls) const {
  backend_.copy_to_device(&static_cast<Epoch*>(epoch_.get())->epoch, &calls, sizeof calls);
}

void OneShot::enqueue(const Prepared& prepared, const NormalProblem& finish, const Operands& operands, const void* sums,
                      Stream stream) const {
  device::OneShotArguments args = make_one_shot_arguments(finish, operands, sums);
  args.rank = rank_;
  args.ranks = ranks_;
  args.epoch = &static_cast<Epoch*>(epoch_.get())->epoch;
  args.tickets = &static_cast<Epoch*>(epoch_.get())->tickets;
  for (int rank = 0; rank < ranks_; ++rank) args.received[rank] = prepared.received->at<unsigned long long>(rank);
  args.buffer_words = std::int64_t(prepared.received->bytes() / sizeof(std::uint64_t) / 2);
  args.patience = patience_.get();

  const std::int64_t warps = ceil_div(prepared.items, warp);
  const int sms = ContextInternals::chooser(context_).constraints().sms;
  const std::int64_t most = sms != 0 ? sms : std::int64_t(device::ONE_SHOT_BLOCKS_PER_SM) * backend_.device().sm_count;
  const int grid = int(std::min(warps, most));
  args.threads = warp * int(std::min<std::int64_t>(ceil_div(warps, grid), device::ONE_SHOT_THREADS / warp));
  backend_.launch(*prepared.kernel->loaded, {.grid = grid, .threads = args.threads, .resident = true}, bytes_of(args),
                  stream);
}

}  // namespace jitgemm
