#include "parallel/overlapped.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "chooser.hpp"
#include "core/problem_fields.hpp"
#include "core/sharded_problem.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "plan/shortlist.hpp"

namespace jitgemm {
namespace {

constexpr std::size_t line = 256;  // bytes that parts of device memory are multiples of
std::size_t whole_lines(std::size_t bytes) { return (bytes + line - 1) / line * line; }

/// Of one call: what all other ranks send, and flags that say so.
struct StagingNeed {
  std::size_t flags = 0, buffer = 0, sent = 0;  // bytes
  std::size_t bytes() const { return 2 * flags + 2 * buffer + line + sent; }
};

StagingNeed staging_of(const NormalProblem& p, const KernelConfig& config, int ranks) {
  if (p.sharding == Sharding::gathered_a)
    return {.flags = line,
            .buffer = whole_lines(std::size_t(ranks) * std::size_t(p.a.stride) * size_of(p.a.type)),
            .sent = 0};
  const auto places = std::size_t(places_of_shard(config, launch_shape(p, config)));
  const auto shard = std::size_t(p.m * staged_ld(p.n, p.d.type)) * size_of(p.d.type);
  return {.flags = whole_lines(std::size_t(ranks) * places * sizeof(unsigned)),
          .buffer = whole_lines(std::size_t(ranks) * shard),
          .sent = whole_lines(std::size_t(ranks) * shard)};
}

}  // namespace

/// Where all ranks' flags of calls are, in symmetric memory.
struct Overlapped::Flags {
  unsigned epoch;
  unsigned finished[device::most_ranks];
};

/// Two buffers for what comes from other ranks, each with flags. What is behind them is the rank's own alone: the
/// epochs of both buffers' last use, and what it sends.
struct Overlapped::Staging {
  Staging(Backend& backend, int rank, int ranks, const AllGatherBytes& all_gather, const StagingNeed& its_need)
      : need(its_need), memory(backend, rank, ranks, all_gather, need.bytes()) {}

  std::size_t flags_at(int buffer) const { return std::size_t(buffer) * need.flags; }
  std::size_t buffer_at(int buffer) const { return 2 * need.flags + std::size_t(buffer) * need.buffer; }
  unsigned* last_use(int buffer) const { return memory.own<unsigned>(2 * need.flags + 2 * need.buffer) + buffer; }
  std::byte* sent() const { return memory.own<std::byte>(2 * need.flags + 2 * need.buffer + line); }
  bool holds(const StagingNeed& other) const {
    return other.flags <= need.flags && other.buffer <= need.buffer && other.sent <= need.sent;
  }

  StagingNeed need;
  SymmetricMemory memory;
};

Overlapped::Overlapped(Context& context, int rank, int ranks, AllGatherBytes all_gather, double timeout_seconds)
    : context_(context),
      backend_(ContextInternals::backend(context)),
      rank_(rank),
      ranks_(ranks),
      all_gather_(std::move(all_gather)),
      patience_(backend_, timeout_seconds),
      begin_(ContextInternals::store(context).get(generate_begin_call(backend_.device()), 0)),
      begun_(make_event(backend_)) {
  for (int i = 1; i < ranks; ++i) {
    copy_streams_.push_back(make_copy_stream(backend_));
    copied_.push_back(make_event(backend_));
  }
}

void Overlapped::connect() { flags_.emplace(backend_, rank_, ranks_, all_gather_, sizeof(Flags)); }

std::vector<RankedConfig> Overlapped::ranked(const Context& context, int ranks, const Problem& problem,
                                             Exchange exchange, std::size_t limit, std::string& why_not) {
  why_not = why_not_sharded(problem, exchange, ranks);
  if (!why_not.empty()) return {};
  const NormalProblem sharded = sharded_problem(problem, exchange, ranks);
  // Of all: a family's own short list knows nothing of shards.
  const auto all = ContextInternals::chooser(context).planner(sharded).ranked();
  if (all.empty()) why_not = "no kernel computes it";
  return shortlist(all, limit, [](const KernelConfig&) { return true; });
}

std::optional<RankedConfig> Overlapped::choose(const Context& context, int ranks, const Problem& problem,
                                               Exchange exchange, std::string& why_not) {
  const std::vector<RankedConfig> first = ranked(context, ranks, problem, exchange, 1, why_not);
  return first.empty() ? std::nullopt : std::optional(first.front());
}

std::size_t Overlapped::staging_bytes(int ranks, const Problem& problem, Exchange exchange,
                                      const KernelConfig& config) {
  return staging_of(sharded_problem(problem, exchange, ranks), config, ranks).bytes();
}

Overlapped::Prepared Overlapped::prepare(const Problem& problem, Exchange exchange, const KernelConfig& config) const {
  Prepared prepared;
  prepared.problem = sharded_problem(problem, exchange, ranks_);
  prepared.exchange = exchange;
  prepared.own_a_ld = problem.a.ld != 0 ? problem.a.ld : problem.k;
  prepared.ready = ContextInternals::make_sharded_ready(context_, prepared.problem, config);
  return prepared;
}

void Overlapped::stage(Prepared& prepared) {
  StagingNeed need = staging_of(prepared.problem, prepared.ready.config, ranks_);
  const std::lock_guard lock(mutex_);
  if (stagings_.empty() || !stagings_.back()->holds(need)) {
    if (!stagings_.empty()) {
      need.flags = std::max(need.flags, stagings_.back()->need.flags);
      need.buffer = std::max(need.buffer, stagings_.back()->need.buffer);
      need.sent = std::max(need.sent, stagings_.back()->need.sent);
    }
    stagings_.push_back(std::make_shared<Staging>(backend_, rank_, ranks_, all_gather_, need));
  }
  prepared.staging = stagings_.back();
}

void Overlapped::drop_unused_memory() {
  const std::lock_guard lock(mutex_);
  for (auto staging = stagings_.begin(); staging != stagings_.end();) {
    if (staging->use_count() > 1) {
      ++staging;
      continue;
    }
    (*staging)->memory.free_together(all_gather_);
    staging = stagings_.erase(staging);
  }
}

void Overlapped::check(const Prepared& prepared, const Operands& operands, Stream stream) const {
  const auto aligned = [&](const void* pointer, const char* name) {
    backend_.check_pointer(pointer, name, stream);
    if (std::bit_cast<std::uintptr_t>(pointer) % 16 != 0)
      throw Error(ErrorCode::invalid_operand, std::string("operand ") + name +
                                                  " of an overlapped product is not aligned to 16 bytes; align it, or "
                                                  "give Overlap::none");
  };
  aligned(operands.a, "A");
  aligned(operands.b, "B");
  aligned(operands.d, "D");
  if (reads_c(prepared.problem)) aligned(operands.c, "C");
  if (prepared.problem.epilogue.bias != Bias::none) backend_.check_pointer(operands.bias, "bias", stream);
}

void Overlapped::gemm(const Prepared& prepared, const Problem& problem, const Operands& given, Stream stream) {
  check(prepared, given, stream);
  const std::lock_guard lock(mutex_);
  const int buffer = int(calls_++ % buffers_);
  begin(*prepared.staging, buffer, stream);
  Operands operands = given;
  ShardOperands shards = shard_operands(prepared, buffer);
  if (prepared.exchange == Exchange::all_gather_a) {
    shards.own_a = given.a;
    shards.own_a_ld = prepared.own_a_ld;
    operands.a = prepared.staging->memory.own<std::byte>(prepared.staging->buffer_at(buffer));
    send_a(prepared, given, buffer, stream);
  }
  NormalProblem sharded = prepared.problem;
  for_each_scalar([&](const ProblemField& field, auto member) {
    if (field.applies(problem)) member(sharded) = member(problem);
  });
  const auto wait_for_copies = [&] {  // A is read until then
    if (prepared.exchange != Exchange::all_gather_a) return;
    for (const OwnedEvent& copied : copied_) backend_.wait_event(copied.get(), stream);
  };
  try {
    ContextInternals::launch_sharded(context_, prepared.ready, sharded, operands, shards, stream);
  } catch (...) {
    wait_for_copies();
    throw;
  }
  wait_for_copies();
}

void Overlapped::begin(const Staging& staging, int buffer, Stream stream) {
  device::BeginCallArguments args{};
  args.rank = rank_;
  args.ranks = ranks_;
  Flags* const own = flags_->own<Flags>();
  args.epoch = &own->epoch;
  args.last_use = staging.last_use(buffer);
  args.finished = own->finished;
  for (int rank = 0; rank < ranks_; ++rank) args.finished_at[rank] = &flags_->at<Flags>(rank)->finished[rank_];
  args.patience = patience_.get();
  backend_.launch(*begin_->loaded, {.grid = 1, .threads = 32}, bytes_of(args), stream);
}

ShardOperands Overlapped::shard_operands(const Prepared& prepared, int buffer) const {
  const Staging& staging = *prepared.staging;
  ShardOperands shards{
      .rank = rank_, .ranks = ranks_, .epoch = &flags_->own<Flags>()->epoch, .patience = patience_.get()};
  shards.arrived = staging.memory.own<unsigned>(staging.flags_at(buffer));
  shards.received = staging.memory.own(staging.buffer_at(buffer));
  shards.sent = staging.sent();
  for (int rank = 0; rank < ranks_; ++rank) {
    shards.sent_to[std::size_t(rank)] = staging.memory.at(rank, staging.buffer_at(buffer));
    shards.arrived_at[std::size_t(rank)] = staging.memory.at<unsigned>(rank, staging.flags_at(buffer));
  }
  shards.staged_ld = staged_ld(prepared.problem.n, prepared.problem.d.type);
  return shards;
}

void Overlapped::send_a(const Prepared& prepared, const Operands& operands, int buffer, Stream stream) {
  const Staging& staging = *prepared.staging;
  const NormalProblem& p = prepared.problem;
  const std::size_t size = size_of(p.a.type), row = std::size_t(p.k) * size, pitch = std::size_t(p.a.ld) * size,
                    own_pitch = std::size_t(prepared.own_a_ld) * size;
  const std::size_t at = staging.buffer_at(buffer) + std::size_t(rank_) * std::size_t(p.a.stride) * size;
  const bool in_one_piece = row == pitch && row == own_pitch;
  backend_.record_event(begun_.get(), stream);
  for (int i = 1; i < ranks_; ++i) {
    const int to = device::recipient_at(rank_, ranks_, i);
    const Stream copies = copy_streams_[std::size_t(i - 1)].get();
    backend_.wait_event(begun_.get(), copies);
    if (in_one_piece)
      backend_.copy_rows(staging.memory.at(to, at), 0, operands.a, 0, row * std::size_t(p.m), 1, copies);
    else
      backend_.copy_rows(staging.memory.at(to, at), pitch, operands.a, own_pitch, row, std::size_t(p.m), copies);
    backend_.copy_rows(staging.memory.at<unsigned>(to, staging.flags_at(buffer)) + rank_, 0,
                       &flags_->own<Flags>()->epoch, 0, sizeof(unsigned), 1, copies);
    backend_.record_event(copied_[std::size_t(i - 1)].get(), copies);
  }
}

}  // namespace jitgemm
