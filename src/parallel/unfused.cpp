#include "parallel/unfused.hpp"

#include "context_internals.hpp"
#include "core/operand_matrix.hpp"

namespace jitgemm {
namespace {

// Of NCCL 2.28 on two H200 of one host: 21 us up to 1 MiB of result, 54 at 16 MiB, 158 at 64 MiB of all-gather.
constexpr double nccl_latency_us = 18, nccl_bytes_per_us = 240e3;

std::size_t bytes_of_shard(const RankProblem& p) {
  return std::size_t(p.rows_of_a * p.asked.k) * size_of(p.asked.a.type);
}
std::size_t bytes_of_sums(const RankProblem& p) {
  return std::size_t(p.asked.m * p.asked.n) * size_of(p.travelling_type());
}

}  // namespace

std::size_t received_bytes(const RankProblem& p) {
  if (!p.communicates) return 0;
  const auto others = std::size_t(p.ranks - 1);
  switch (p.exchange) {
    case Exchange::all_gather_a:
      return others * bytes_of_shard(p);
    case Exchange::reduce_scatter_d:
      return others * bytes_of_sums(p) / std::size_t(p.ranks);
    case Exchange::all_reduce_d:
      break;
  }
  return 2 * others * bytes_of_sums(p) / std::size_t(p.ranks);
}

double expected_exchange_us(const RankProblem& p) {
  return p.communicates ? nccl_latency_us + double(received_bytes(p)) / nccl_bytes_per_us : 0;
}

std::size_t UnfusedProduct::staging_bytes(const RankProblem& p) {
  if (!p.communicates || sums_in_d(p)) return 0;
  return p.reduces() ? bytes_of_sums(p) : std::size_t(p.ranks) * bytes_of_shard(p);
}

UnfusedProduct::UnfusedProduct(Context& context, Communicator& communicator, const RankProblem& problem,
                               const KernelConfig& config)
    : context_(context),
      backend_(ContextInternals::backend(context)),
      communicator_(communicator),
      config_(config),
      staging_bytes_(staging_bytes(problem)) {
  if (is_empty(problem.product)) return;
  ContextInternals::make_ready(context, problem.product, config);
  if (!problem.communicates || !problem.reduces()) return;
  nccl::type_of(communicator.api(), problem.travelling_type());
  if (!problem.finish_is_trivial)
    finish_.emplace(backend_, ContextInternals::store(context), problem.finish, problem.asked.n);
}

void UnfusedProduct::enqueue(const RankProblem& p, const Operands& operands, void* staging, Stream stream) {
  Operands product = operands;
  if (p.communicates && p.reduces()) {
    product = operands_of_sums(p, operands, staging);
  } else if (p.communicates) {
    product.a = staging;
  }
  check_operands(p, operands, product);
  if (p.communicates && !p.reduces()) all_gather(p, operands.a, static_cast<char*>(staging), stream);
  context_.gemm(p.product, product, stream, config_);
  if (p.communicates && p.reduces()) reduce(p, operands, static_cast<char*>(product.d), stream);
}

void UnfusedProduct::all_gather(const RankProblem& p, const void* shard, char* gathered, Stream stream) {
  const std::size_t bytes = bytes_of_shard(p), row_bytes = std::size_t(p.asked.k) * size_of(p.asked.a.type);
  if (p.asked.a.ld != p.asked.k && p.rows_of_a > 1) {  // NCCL moves one piece
    char* const own = gathered + std::size_t(communicator_.rank()) * bytes;
    backend_.copy_rows(own, row_bytes, shard, std::size_t(p.asked.a.ld) * size_of(p.asked.a.type), row_bytes,
                       std::size_t(p.rows_of_a), stream);
    shard = own;
  }
  communicator_.all_gather(shard, gathered, bytes, stream);
}

void UnfusedProduct::reduce(const RankProblem& p, const Operands& operands, char* sums, Stream stream) {
  const DataType type = p.travelling_type();
  const auto count = std::size_t(p.rows_of_d * p.asked.n);
  void* sum = p.finish_is_trivial ? operands.d : sums;
  if (p.exchange == Exchange::all_reduce_d) {
    communicator_.all_reduce(sums, sum, count, type, stream);
  } else {
    if (!p.finish_is_trivial) sum = sums + std::size_t(communicator_.rank()) * count * size_of(type);
    communicator_.reduce_scatter(sums, sum, count, type, stream);
  }
  const void* const sources[] = {sum};
  if (!p.finish_is_trivial) finish_->enqueue(p.finish, operands, sources, p.asked.n, stream);
}

}  // namespace jitgemm
